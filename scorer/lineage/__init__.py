"""The lineage of a score: the event, the version, the channel move that put it there, and the recomputed score."""
