"""A snapshot: stretches of topics frozen and copied into files, joined with labels, split by time."""
