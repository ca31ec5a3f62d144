"""The container image: built, run as in a cluster, killed and measured by `python -m tests image`."""
