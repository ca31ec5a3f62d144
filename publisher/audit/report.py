"""The result of an audit: counts, the faults among them, and the first positions of each fault."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

FAULTS = (
    "missing",
    "duplicates",
    "phantoms",
    "out_of_order",
    "version_regressions",
    "misassigned",
    "uncommitted",
    "different_ids",
    "unreadable",
)
"""The names of the counts that are faults, for all audits. Each type of report has some of them as fields."""
EXAMPLES = 5  # positions of each fault that a report contains

Progress = Callable[[str, int, int], None]
"""Called with a name for the data that is read, the completed amount, and the total amount."""


@dataclass
class Report:
    """Counts of records, with one field for each count. The fields listed in FAULTS count faults.

    Each audit adds its own counts as fields. The docstrings of the fields are shown in the tables of publisher/docs/audit.md.
    """

    title: ClassVar[str] = "audit"
    positions: ClassVar[str] = "topic/partition/offset"

    examples: dict[str, list[str]] = field(default_factory=dict)
    """The first positions of each fault."""

    @property
    def faults(self) -> dict[str, int]:
        """Return the counts of this audit that are faults, by name."""
        return {name: getattr(self, name) for name in FAULTS if hasattr(self, name)}

    @property
    def clean(self) -> bool:
        return not any(self.faults.values())

    def to_dict(self) -> dict[str, Any]:
        return {"clean": self.clean, **vars(self)}

    def rows(self) -> dict[str, int]:
        return {name: value for name, value in vars(self).items() if isinstance(value, int)}

    def notes(self) -> list[str]:
        """Return explanations of counts that an operator may misunderstand, one sentence for each such count."""
        return []

    def note(self, fault: str, count: int, partition: str, offsets: Sequence[int] | NDArray[np.int64]) -> None:
        """Add faults of one kind to the report.

        Args:
            fault: the kind of fault: one of FAULTS that this report has as a field.
            count: the number of faults.
            partition: the partition of the faults, written as `topic/partition`.
            offsets: the offsets of the faults, or the first EXAMPLES of them. The report keeps EXAMPLES positions of each kind.
        """
        if count:
            setattr(self, fault, getattr(self, fault) + count)
            shown = self.examples.setdefault(fault, [])
            shown += [f"{partition}/{offset}" for offset in offsets[: EXAMPLES - len(shown)]]
