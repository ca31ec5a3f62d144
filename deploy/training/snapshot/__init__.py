"""A snapshot: the records of fixed offset ranges, copied to files, joined with labels, and split by time."""
