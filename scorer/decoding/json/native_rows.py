"""Plain JSON of float32 by the native scanner. Events that it is not certain about are decoded by msgspec.

The scanner serves signatures with only float32 fields, scalars or arrays of one length, and ids that are strings or integers.
"""

from collections.abc import Callable, Sequence
from typing import Self

from model_registry.package.signature import InputField, Signature
from scorer.decoding.tensors import MatrixColumns, select
from scorer.decoding.types import Decoded
from scorer.native.load import native_library
from scorer.native.scanner import UNCERTAIN, NumberField, Scanner, ScanResult, plain

FEWEST = 8
"""Events of a batch. A call costs what the scanner saves on about 5 events of 30 numbers (`tests.benchmarks.bench.scanner`)."""
REST = 15
"""Batches that go without the scanner after one that was mostly uncertain: producers write all events in one manner."""


class NativeRows:
    """Decodes batches of one signature by the native scanner."""

    def __init__(self, signature: Signature, scanner: Scanner) -> None:
        self._columns = MatrixColumns(signature)
        self._scanner = scanner
        self._resting = 0

    @classmethod
    def of_objects(cls, signature: Signature, id_field: str | None) -> Self | None:
        """Return a decoder of objects; None if a field cannot be scanned or there is no native scanner."""
        return cls._made(signature, [_wanted(field) for field in signature.fields], id_field)

    @classmethod
    def of_arrays(cls, signature: Signature) -> Self | None:
        """Return a decoder of arrays with all numbers of an event, or None."""
        return cls._made(signature, [NumberField("", array=_numbers(signature))], None, bare=True)

    @classmethod
    def of_envelopes(cls, signature: Signature, name: str, id_field: str | None) -> Self | None:
        """Return a decoder of objects whose field of this name is such an array, or None."""
        return cls._made(signature, [NumberField(name, array=_numbers(signature))], id_field)

    @classmethod
    def _made(
        cls, signature: Signature, fields: Sequence[NumberField], id_field: str | None, *, bare: bool = False
    ) -> Self | None:
        names = [field.name for field in fields]
        library = native_library().library
        if library is None or not fields or id_field in names or not all(map(plain, [*names, id_field or ""])):
            return None
        if any(field.dtype != "float32" or field.varies or field.raw for field in signature.fields):
            return None
        return cls(signature, Scanner(library, fields, id_field, bare=bare))

    def decoded(self, values: Sequence[bytes], otherwise: Callable[[Sequence[bytes]], Decoded]) -> Decoded | None:
        """Decode a batch, its uncertain events by `otherwise`. Returns None if `otherwise` must decode all of it."""
        if self._resting:
            self._resting -= 1
            return None
        scanned = self._scanner.scan(values)
        uncertain = scanned.kinds.count(UNCERTAIN)
        if uncertain * 2 > len(values):
            self._resting = REST
            return None
        found = Decoded(list(range(len(values))), scanned.ids, self._columns.tensors(scanned.rows), {})
        return self._completed(found, scanned, values, otherwise) if uncertain else found

    def _completed(
        self, found: Decoded, scanned: ScanResult, values: Sequence[bytes], otherwise: Callable[[Sequence[bytes]], Decoded]
    ) -> Decoded:
        """Add the uncertain events, decoded by `otherwise`, to the batch."""
        at = [row for row, kind in enumerate(scanned.kinds) if kind == UNCERTAIN]
        rest = otherwise([values[row] for row in at])
        good = [at[row] for row in rest.rows]
        ids = list(scanned.ids)
        for row, id_ in zip(good, rest.ids, strict=True):
            ids[row] = id_
        found.ids = ids
        for name, tensor in rest.tensors.items():
            found.tensors[name][good] = tensor
        if not rest.rejected:
            return found
        found.rejected = {at[row]: poison for row, poison in rest.rejected.items()}
        return select(found, [row for row in found.rows if row not in found.rejected])


def _wanted(field: InputField) -> NumberField:
    absent = None if field.required or isinstance(field.default, str) else float(field.default or 0.0)
    return NumberField(field.name, absent, field.array or 0)


def _numbers(signature: Signature) -> int:
    """Return the count of numbers of an event."""
    return sum(field.array or 1 for field in signature.fields)
