"""Networks, with torch itself: a step of the check with an environment of its own (`python3 -m tests --only network`)."""
