"""Decoding of JSON with float32 numbers by the scanner of the native library.

The scanner reports an event as uncertain if it may have read the event incorrectly. msgspec then decodes the event.

The scanner supports signatures in which every field is a float32 number or a float32 array of fixed length. The id must be a
string or an integer.
"""

from collections.abc import Callable, Sequence
from typing import Self

from model_registry.package.signature import InputField, Signature
from scorer.decoding.tensors import MatrixColumns, select
from scorer.decoding.types import Decoded
from scorer.native.load import native_library
from scorer.native.scanner import UNCERTAIN, NumberField, Scanner, ScanResult, plain

MIN_EVENTS = 8
"""The minimum number of events in a scanned batch.

For 5 events of 30 numbers, a scan saves no time (`tests.benchmarks.bench.scanner`).
"""
REST = 15
"""The number of batches that are not scanned after a batch of mostly uncertain events, as the next events are often similar."""


class NativeRows:
    """Decoder of the events of one signature by the native scanner."""

    def __init__(self, signature: Signature, scanner: Scanner) -> None:
        self._columns = MatrixColumns(signature)
        self._scanner = scanner
        self._resting = 0

    @classmethod
    def of_objects(cls, signature: Signature, id_field: str | None) -> Self | None:
        """Create a decoder of JSON objects; None if a field cannot be scanned or the native library is not loaded."""
        return cls._create(signature, [_number_field(field) for field in signature.fields], id_field)

    @classmethod
    def of_arrays(cls, signature: Signature) -> Self | None:
        """Create a decoder of JSON arrays; None if a field cannot be scanned or the native library is not loaded."""
        return cls._create(signature, [NumberField("", array=_count_numbers(signature))], None, prefix_removed=True)

    @classmethod
    def of_envelopes(cls, signature: Signature, name: str, id_field: str | None) -> Self | None:
        """Create a decoder of JSON objects that have all numbers in the array field `name`.

        Returns None if a field cannot be scanned or the native library is not loaded.
        """
        return cls._create(signature, [NumberField(name, array=_count_numbers(signature))], id_field)

    @classmethod
    def _create(
        cls, signature: Signature, fields: Sequence[NumberField], id_field: str | None, *, prefix_removed: bool = False
    ) -> Self | None:
        names = [field.name for field in fields]
        library = native_library().library
        if library is None or not (fields or id_field) or id_field in names or not all(map(plain, [*names, id_field or ""])):
            return None
        if any(field.dtype != "float32" or field.varies or field.raw for field in signature.fields):
            return None
        return cls(signature, Scanner(library, fields, id_field, bare=prefix_removed))

    def decoded(self, values: Sequence[bytes], otherwise: Callable[[Sequence[int]], Decoded]) -> Decoded | None:
        """Decode a batch with the scanner. Call `otherwise` to decode the events that the scanner reports as uncertain.

        Args:
            values: the JSON of the events.
            otherwise: a function that decodes the events at the given indices of the batch.

        Returns:
            The decoded batch. None if the caller must decode the whole batch itself, because the scanner was uncertain about
            most events of this batch or of a recent one.
        """
        if self._resting:
            self._resting -= 1
            return None
        scanned = self._scanner.scan(values)
        uncertain = scanned.kinds.count(UNCERTAIN)
        if uncertain * 2 > len(values):
            self._resting = REST
            return None
        batch = Decoded(list(range(len(values))), scanned.ids, self._columns.tensors(scanned.rows), {})
        return self._complete(batch, scanned, otherwise) if uncertain else batch

    def _complete(self, batch: Decoded, scanned: ScanResult, otherwise: Callable[[Sequence[int]], Decoded]) -> Decoded:
        """Call `otherwise` to decode the uncertain events, and insert the results into the batch."""
        uncertain = [row for row, kind in enumerate(scanned.kinds) if kind == UNCERTAIN]
        rest = otherwise(uncertain)
        retried = [uncertain[row] for row in rest.rows]
        ids = list(scanned.ids)
        for row, id_ in zip(retried, rest.ids, strict=True):
            ids[row] = id_
        batch.ids = ids
        for name, tensor in rest.tensors.items():
            batch.tensors[name][retried] = tensor
        if not rest.rejected:
            return batch
        batch.rejected = {uncertain[row]: poison for row, poison in rest.rejected.items()}
        return select(batch, [row for row in batch.rows if row not in batch.rejected])


def _number_field(field: InputField) -> NumberField:
    absent = None if field.required or isinstance(field.default, str) else float(field.default or 0.0)
    return NumberField(field.name, absent, field.array or 0)


def _count_numbers(signature: Signature) -> int:
    """Return how many numbers an event of this signature contains, including the elements of arrays."""
    return sum(field.array or 1 for field in signature.fields)
