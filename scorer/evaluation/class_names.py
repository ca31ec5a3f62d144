"""The names of the classes of labels and decisions: the configured names, or the decisions that occur in scores. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorer.evaluation.label_record import Unusable

NONE = -1
SHOWN = 10  # the largest number of classes that an explanation lists


class NameCodes:
    """Assigns numbers to texts, from 0 in the order of their first occurrence."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def __getitem__(self, code: int) -> str:
        """Return the text with this number."""
        return self.all[code]

    @property
    def all(self) -> list[str]:
        """All texts in the order of their numbers."""
        return list(self._codes)

    def code(self, name: str | None) -> int:
        """Return the number of a text, the next free number if the text is new; NONE for None."""
        return NONE if name is None else self._codes.setdefault(name, len(self._codes))


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of labels and decisions.

    Attributes:
        names: The names of the classes, in the order of the numbers in a score (one number per class); None for a class whose
            name is unknown.
        ordered: Whether the order of `names` is known, so that a numeric label k means the class `names[k]`.
        named: True if `names` are names of decisions, which text labels can contain. False if the classes are just the outcomes
            0 and 1.
    """

    names: tuple[str | None, ...]
    ordered: bool = True
    named: bool = True

    def number_of(self, value: str | float) -> float | Unusable:
        """Return the number of the class that a label names; Unusable.UNKNOWN_CLASS if there is no such class."""
        if isinstance(value, str):
            return float(self.names.index(value)) if self.named and value in self.names else Unusable.UNKNOWN_CLASS
        return value if self.ordered and value in range(len(self.names)) else Unusable.UNKNOWN_CLASS

    def explain(self, value: str | float) -> str:
        """Return, as text, the reason why no class has the name that a label contains, and the remedy."""
        shown = ", ".join(str(at) if name is None else name for at, name in enumerate(self.names[:SHOWN]))
        names = f"{shown}, ..." if len(self.names) > SHOWN else shown
        if not self.named:
            return f"{value!r:.100} is neither 0 nor 1, and the scores' decisions do not name two classes; set labels.classes"
        if isinstance(value, str):
            return f"{value!r:.100} is none of the classes {names}; check labels.value and labels.classes"
        if not self.ordered:
            return (
                f"{value:g} is a number, and the order of the classes {names} is unknown; set labels.classes, or label by name"
            )
        return f"{value:g} is not the number of one of the {len(self.names)} classes {names}"


BINARY = Classes(("0", "1"), named=False)


def known(
    configured: Sequence[str], answers: dict[str, NDArray[Any]], decisions: NameCodes, *, numeric: bool = False
) -> Classes | None:
    """Return the configured classes. If none are configured, return the classes that occur as decisions in the answers.

    The result is None if there are no decisions, or if `numeric` is true. `numeric` means that the configuration declares the
    outcomes to be numbers, not classes.
    """
    if numeric:
        return None
    # If all decisions are the same and the scores are no lists, the classes are the outcomes 0 and 1.
    if configured:
        return Classes(tuple(configured))
    chosen = answers.get("decision", np.empty(0, np.int32))
    used = np.unique(chosen[chosen >= 0]).tolist()
    if not used:
        return None
    if answers["row"].shape[1]:
        return _of_rows(answers["row"], chosen, decisions)
    numbers = answers["number"]
    if len(used) == 1:
        return BINARY
    if len(used) == 2 and np.isfinite(numbers).all():
        means = {code: float(numbers[chosen == code].mean()) for code in used}
        return Classes(tuple(decisions[code] for code in sorted(used, key=lambda code: (means[code], decisions[code]))))
    return Classes(tuple(sorted(decisions[code] for code in used)), ordered=False)


def _of_rows(rows: NDArray[np.float64], chosen: NDArray[np.int32], decisions: NameCodes) -> Classes:
    """Return one class per column of the scores. Its name is the decision of the scores in which this column is the largest.

    Args:
        rows: The scores as lists of numbers, (n, columns).
        chosen: The code of the decision of each score, (n,); NONE for a score without a decision.
        decisions: The names of the decisions by their codes.
    """
    # The name of a column is the decision of the row with its highest number, among the rows in which this column is the
    # largest. In a row with a lower number, the number may be below a threshold, so that the decision is another one. Without
    # such a row, the name is None.
    full = np.flatnonzero((chosen >= 0) & np.isfinite(rows).any(axis=1))
    largest = np.nanargmax(rows[full], axis=1)
    names: list[str | None] = [None] * rows.shape[1]
    for column in np.unique(largest).tolist():
        rows_of_column = full[largest == column]
        highest = rows_of_column[np.argmax(rows[rows_of_column, column])]
        names[column] = decisions[int(chosen[highest])]
    return Classes(tuple(names))
