"""A snapshot: ranges of topics, frozen and copied to files, joined with labels, and split by time."""
