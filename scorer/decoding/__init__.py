"""Decoding of the records of an input topic to the tensors of a signature."""
