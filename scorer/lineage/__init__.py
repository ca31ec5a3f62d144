"""The lineage of a score: its event, its model version, the channel move that deployed the version, and a recomputed score."""
