"""The relay and MirrorMaker 2 on two real clusters, in one run."""
