"""The training demo: flights with outcomes that arrive later, a killed training run, and a scorer that uses the result."""
