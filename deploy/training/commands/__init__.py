"""The verbs of `python deploy/training`."""
