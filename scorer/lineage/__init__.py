"""Where a score comes from: the event, the version, the move that put it there; and the score, recomputed."""
