"""What an audit has found: counts, which of them are faults, and the first positions of each fault. One form for all audits."""

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
"""Of all audits; each report has those that its audit looks for."""
EXAMPLES = 5  # positions of each fault that are kept

Progress = Callable[[str, int, int], None]
"""Called with what is being read, how much of it is done, and how much there is at most."""


@dataclass
class Report:
    """Counts of records, a field each: those named in FAULTS are faults, the others are told. Each audit adds its own counts,
    with a line below each for the tables of publisher/docs/audit.md."""

    title: ClassVar[str] = "audit"
    positions: ClassVar[str] = "topic/partition/offset"

    examples: dict[str, list[str]] = field(default_factory=dict)
    """The first positions of each fault."""

    @property
    def faults(self) -> dict[str, int]:
        """The count of each kind of fault that this audit looks for."""
        return {name: getattr(self, name) for name in FAULTS if hasattr(self, name)}

    @property
    def clean(self) -> bool:
        return not any(self.faults.values())

    def to_dict(self) -> dict[str, Any]:
        return {"clean": self.clean, **vars(self)}

    def rows(self) -> dict[str, int]:
        return {name: value for name, value in vars(self).items() if isinstance(value, int)}

    def note(self, fault: str, count: int, partition: str, offsets: Sequence[int] | NDArray[np.int64]) -> None:
        """Count a fault. `offsets` are the first ones in `partition`, which is written `topic/partition`."""
        if count:
            setattr(self, fault, getattr(self, fault) + count)
            shown = self.examples.setdefault(fault, [])
            shown += [f"{partition}/{offset}" for offset in offsets[: EXAMPLES - len(shown)]]
