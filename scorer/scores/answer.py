"""The answers for some rows of a batch, before they are encoded as score records."""

from collections.abc import Sequence
from functools import cached_property

from scorer.scores.outputs import Scores


class BatchAnswers:
    """Encoded scores, decisions and one status for some rows of a batch.

    With `columns`, the lists are created at first use.
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
