"""Publish the version of a run: push, attest and sign it, and move a channel or start a rollout.

Every function is idempotent. It can be repeated after a kill at any point, and two processes of one run can call it at the same
time; its effect occurs once. The argument `at` is the time at which the run froze its snapshot, so that both processes write
the same bytes.
"""
