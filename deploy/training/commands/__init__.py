"""The commands of `python deploy/training`."""
