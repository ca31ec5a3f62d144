"""The format `float32`: the value of an event consists of little-endian float32 numbers, in the order of the signature.

NaN means a missing number if the signature allows missing numbers. Otherwise an event with NaN is rejected.
"""

from collections.abc import Sequence

import numpy as np

from model_registry.package import shapes
from model_registry.package.dtypes import FLOAT_LIMITS
from model_registry.package.signature import Signature
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.record_metadata import RecordMetadata
from scorer.decoding.row_schema import RowSchema, require_no_paths
from scorer.decoding.tensors import MatrixColumns, Row, to_matrix
from scorer.decoding.types import Decoded, FormatMismatch
from scorer.native.byte_columns import ByteColumn

SIZE = 4  # bytes of a number


class Float32Decoder:
    """Decoder of float32 rows for one signature.

    Raises:
        FormatMismatch: a tensor has another type than float, a field has a path, or the signature has a field of varying length
            and more than one tensor.
    """

    def __init__(self, signature: Signature, max_event_bytes: int) -> None:
        kinds = {
            tensor.tensor: f"bytes of {tensor.dtype}" if tensor.fields[0].raw else tensor.dtype for tensor in signature.fed
        }
        floats = all(kind in FLOAT_LIMITS for kind in kinds.values())
        if signature.varies and (len(kinds) > 1 or not floats):
            names = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
            raise FormatMismatch(
                f"input.format float32 supports a varying length only for a single tensor of floats, not {names}"
            )
        if not floats:
            others = ", ".join(f"{name} ({kind})" for name, kind in kinds.items() if kind not in FLOAT_LIMITS)
            raise FormatMismatch(f"input.format float32 supports floats only, and the signature has {others}")
        self._columns = MatrixColumns(signature)
        self._bytes = self._columns.width * SIZE
        self._fields = RowSchema(require_no_paths(signature, "float32"), None, max_event_bytes)
        self._varying = signature.fields[0] if signature.varies else None

    def decode(self, values: Sequence[bytes | None], _: RecordMetadata | None = None) -> Decoded:
        if self._varying is not None:
            return self._fields.decode_singly(values, self._row)
        rows = list(range(len(values)))
        rejected: dict[int, Poison] = {}
        if isinstance(values, ByteColumn) and self._fields.fits(values) and (values.lengths() == self._bytes).all():
            packed = values.packed()
            numbers = packed.text[packed.starts[0] : packed.ends[-1]].view("<f4").reshape(len(values), -1)
            return self._fields.tensors.finished(Decoded(rows, [None] * len(rows), self._columns.tensors(numbers), rejected))
        if not self._fields.fits(values) or not set(map(len, values)) <= {self._bytes}:  # type: ignore[arg-type]
            rejected = {row: poison for row in rows if (poison := self._find_fault(values[row]))}
            rows = [row for row in rows if row not in rejected]
            values = [values[row] for row in rows]
        numbers = to_matrix(values, self._columns.width, "<f4")  # type: ignore[arg-type]  # no None is left
        return self._fields.tensors.finished(Decoded(rows, [None] * len(rows), self._columns.tensors(numbers), rejected))

    def _row(self, value: bytes) -> Row:
        """Return the row of an event whose only field is an array of varying length. Raises Poison.

        The array in the row is a buffer of float64.
        """
        assert self._varying is not None
        most = self._varying.array or 0
        step = shapes.step_size(self._varying.shape or ())
        if len(value) % (SIZE * step) or len(value) > SIZE * most:
            expected = f"the length must be a multiple of {SIZE * step} and at most {SIZE * most}"
            raise Poison(Reason.MALFORMED, f"the value has {len(value)} bytes; {expected}")
        return (np.frombuffer(value, "<f4").astype("<f8").data,)

    def _find_fault(self, value: bytes | None) -> Poison | None:
        try:
            size = len(self._fields.sized(value))
        except Poison as poison:
            return poison.without_traceback()
        if size != self._bytes:
            expected = f"{self._columns.width} numbers of float32 have {self._bytes} bytes"
            return Poison(Reason.MALFORMED, f"the value has {size} bytes; {expected}")
        return None
