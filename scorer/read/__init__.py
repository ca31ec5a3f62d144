"""Scores of a time range as a table, for notebooks and files.

`scores` is the public function of this package:

    import scorer.read

    frame = scorer.read.scores("scorer.yaml", since="1h", labels=True).to_pandas()
"""

from scorer.read.score_table import ScoreTable, scores

__all__ = ["ScoreTable", "scores"]
