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
"""The faults of all audits; each report has those of its audit."""
EXAMPLES = 5  # positions of each fault that are kept

Progress = Callable[[str, int, int], None]
"""Called with the current activity, its completed amount, and the maximum."""


@dataclass
class Report:
    """Counts of records, one field each; those in FAULTS are faults.

    Each audit adds its own counts, with a docstring each for the tables of publisher/docs/audit.md.
    """

    title: ClassVar[str] = "audit"
    positions: ClassVar[str] = "topic/partition/offset"

    examples: dict[str, list[str]] = field(default_factory=dict)
    """The first positions of each fault."""

    @property
    def faults(self) -> dict[str, int]:
        """Return the count of each kind of fault of this audit."""
        return {name: getattr(self, name) for name in FAULTS if hasattr(self, name)}

    @property
    def clean(self) -> bool:
        return not any(self.faults.values())

    def to_dict(self) -> dict[str, Any]:
        return {"clean": self.clean, **vars(self)}

    def rows(self) -> dict[str, int]:
        return {name: value for name, value in vars(self).items() if isinstance(value, int)}

    def note(self, fault: str, count: int, partition: str, offsets: Sequence[int] | NDArray[np.int64]) -> None:
        """Count a fault. `offsets` are the first ones in `partition`, written as `topic/partition`."""
        if count:
            setattr(self, fault, getattr(self, fault) + count)
            shown = self.examples.setdefault(fault, [])
            shown += [f"{partition}/{offset}" for offset in offsets[: EXAMPLES - len(shown)]]
