"""The commands of `scorer train`."""
