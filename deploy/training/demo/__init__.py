"""The training demo: flights with late outcomes, a training that is killed, and a scorer that serves the result."""
