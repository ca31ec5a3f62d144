"""Publish the version of a run: push, attest and sign it, and move a channel or start a rollout.

Every function can be repeated after a kill at any point, and can be called by two processes of one run at the same time; its
effect occurs once. `at` is the time of the run's freeze, so that both processes write the same bytes.
"""
