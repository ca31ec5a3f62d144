"""JSON objects to tensors: whole batches through one compiled msgspec decoder, single events where one of them is bad.

Arrays of floats go through simdjson, straight into the tensor.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from model_registry.package.signature import Signature
from scorer.events.decoder import Decoded, Poison, Reason
from scorer.events.fields import FAULTS, Fields, as_tuple
from scorer.events.json.float_arrays import FloatArrays, wide
from scorer.events.tensors import Row


class JsonDecoder:
    """Decodes JSON objects for one signature. `id_field` is the event field that holds the id, or None."""

    def __init__(self, signature: Signature, id_field: str | None, max_event_bytes: int) -> None:
        self._fields = Fields(signature, id_field, max_event_bytes)
        self._decode = msgspec.json.Decoder(self._fields.struct).decode
        self._arrays = FloatArrays(self._fields) if wide(signature) else None

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode a batch; see `Decoder`."""
        fields = self._fields
        if not fields.fits(values):
            return fields.singly(values, self._read)
        good: Sequence[bytes] = values  # type: ignore[assignment]  # each of them fits
        try:
            if self._arrays is not None:
                read = self._arrays.read
                return fields.decoded(read(value) or self._read_whole(value) for value in good)
            check_utf8(good)
            return fields.decoded(map(as_tuple, map(self._decode, good)))
        except FAULTS:
            return fields.singly(values, self._read)

    def _read_whole(self, value: bytes) -> Row:
        value.decode("utf-8")
        return as_tuple(self._decode(value))

    def _read(self, value: bytes) -> Row:
        """One event, or the Poison that says what is wrong with it."""
        return read_checked(value, lambda text: as_tuple(self._decode(text)), self._event)

    def _event(self, value: Any) -> Row:
        if not isinstance(value, dict):
            raise Poison(Reason.WRONG_TYPE, f"the event is a JSON {type(value).__name__}, not an object")
        return self._fields.checked(value)


class IdField:
    """Reads the configured id field (None: there is none) out of events that may be anything at all."""

    def __init__(self, name: str | None) -> None:
        fields = [("value", str | int | None, None)] if name else []
        rename = {"value": name} if name else {}
        self._decode = msgspec.json.Decoder(msgspec.defstruct("Id", fields, rename=rename)).decode
        self._named = name is not None

    def of(self, value: bytes | None) -> str | int | None:
        """The id, or None where the event has none that can be read."""
        try:
            found: str | int | None = self._decode(value or b"").value if self._named else None  # type: ignore[attr-defined]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return found


def check_utf8(values: Sequence[bytes]) -> None:
    """One look at the whole batch: msgspec does not check strings that it skips."""
    text = b"\n".join(values)
    if not text.isascii():
        text.decode("utf-8")


def read_checked(value: bytes, decode: Callable[[bytes], Row], lenient: Callable[[Any], Row]) -> Row:
    """One event by its compiled decoder; what that refuses by the standard library's: NaN where it is allowed, else the reason.

    `lenient` makes a row of what JSON said. Raises Poison.
    """
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Poison(Reason.NOT_UTF8, str(error)) from None
    try:
        return decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        event = json.loads(value)
        json.dumps(event, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise Poison(Reason.MALFORMED, f"not JSON: {error}") from None
    return lenient(event)
