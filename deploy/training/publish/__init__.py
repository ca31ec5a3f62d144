"""Publish the version of a run: push, attest and sign it, and move a channel or start a rollout.

Every function is idempotent: it can be repeated after a kill, and two processes of one run can call it at the same time. The
argument `at` is the time at which the run froze its snapshot.
"""

# Both processes write the same bytes, because attestations carry the time `at`.
