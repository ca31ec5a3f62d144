"""The relay beside MirrorMaker 2, on two real clusters in one run."""
