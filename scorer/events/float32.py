"""Rows of little-endian float32 to tensors: an event is its numbers and nothing else, in the order of the signature.

NaN stands for a missing number where the signature allows one, and is refused elsewhere.
"""

from collections.abc import Sequence

from model_registry.package.signature import Signature
from scorer.events.decoder import Decoded, Poison, Reason, Unsuited
from scorer.events.fields import Fields, without_paths
from scorer.events.native.texts import Texts
from scorer.events.tensors import Columns, all_float, matrix

SIZE = 4  # bytes of a number


class Float32Decoder:
    """Decodes rows for one signature. Raises Unsuited where a tensor is not of floats or of a length that varies, or a
    field has a path."""

    def __init__(self, signature: Signature, max_event_bytes: int) -> None:
        if signature.varies:
            raise Unsuited(
                "input.format float32 has rows of one length, and the signature has lengths that vary; use json or avro"
            )
        if not all_float(signature):
            others = ", ".join(f"{t.tensor} ({t.dtype})" for t in signature.fed if "float" not in t.dtype)
            raise Unsuited(f"input.format float32 carries floats only, and the signature has {others}")
        self._columns = Columns(signature)
        self._bytes = self._columns.width * SIZE
        self._fields = Fields(without_paths(signature, "float32"), None, max_event_bytes)

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        rows = list(range(len(values)))
        rejected: dict[int, Poison] = {}
        if isinstance(values, Texts) and self._fields.fits(values) and (values.lengths() == self._bytes).all():
            numbers = values.text[: values.ends[-1]].view("<f4").reshape(len(values), -1)
            return self._fields.tensors.finished(Decoded(rows, [None] * len(rows), self._columns.tensors(numbers), rejected))
        if not self._fields.fits(values) or not set(map(len, values)) <= {self._bytes}:  # type: ignore[arg-type]
            rejected = {row: poison for row in rows if (poison := self._fault(values[row]))}
            rows = [row for row in rows if row not in rejected]
            values = [values[row] for row in rows]
        numbers = matrix(values, self._columns.width, "<f4")  # type: ignore[arg-type]  # no None is left
        return self._fields.tensors.finished(Decoded(rows, [None] * len(rows), self._columns.tensors(numbers), rejected))

    def _fault(self, value: bytes | None) -> Poison | None:
        try:
            size = len(self._fields.sized(value))
        except Poison as poison:
            return poison
        if size != self._bytes:
            expected = f"{self._columns.width} numbers of float32 are {self._bytes}"
            return Poison(Reason.MALFORMED, f"{size} bytes; {expected}")
        return None
