"""Bytes of an input topic to the tensors that a signature names."""
