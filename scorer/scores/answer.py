"""The scores and decisions for some rows of a batch, before they are encoded as score records."""

from collections.abc import Sequence
from functools import cached_property

from scorer.scores.outputs import Scores


class BatchAnswers:
    """The scores and the decisions for some rows of a batch, and the status that all of these rows have.

    `scores` has one JSON text per row. If the argument `columns` is given, scores and decisions are derived from it on first
    use, and the arguments `scores` and `decisions` are ignored.
    """

    def __init__(
        self,
        status: str,
        scores: Sequence[bytes] = (),
        decisions: Sequence[str | None] = (),
        columns: Scores | None = None,
    ) -> None:
        self.status = status
        self.columns = columns
        self._scores = scores
        self._decisions = decisions

    @cached_property
    def scores(self) -> Sequence[bytes]:
        return self._scores if self.columns is None else self.columns.encoded()

    @cached_property
    def decisions(self) -> Sequence[str | None]:
        return self._decisions if self.columns is None else self.columns.decisions()
