"""The container image as a cluster runs it: really built, really run, killed and measured. `python -m tests image` says how."""
