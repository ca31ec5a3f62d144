"""What the tests of the native scanner share."""

import ctypes
from collections.abc import Sequence

from scorer.events.native.library import native
from scorer.events.native.scanner import Scanner


def scanner_of(names: Sequence[str], absent: float | None = None) -> Scanner:
    return Scanner(library(), names, [absent] * len(names), "id")


def library() -> ctypes.PyDLL:
    found = native().library
    assert found is not None
    return found
