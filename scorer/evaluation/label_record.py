"""Parse a record of the topic of labels: the id of an event and its outcome, or the reason why the record is unusable. Pure."""

import math
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from model_registry.package import json_path
from model_registry.untrusted_input import json_documents
from scorer.decoding.batch import Headers
from scorer.decoding.json.schema_id_prefix import without_prefix
from scorer.decoding.passthrough_fields import follow_path
from scorer.settings.labels import HEADER, KEY, LabelSettings

MAX_BYTES = 1 << 20  # of a label's value
MAX_NAME = 200  # characters of a class


class Unusable(StrEnum):
    """The reasons why a record of the topic of labels does not count as a label."""

    NOT_JSON = "not-json"
    OVERSIZE = "oversize"
    NO_ID = "no-id"
    NO_VALUE = "no-value"
    NOT_FINITE = "not-finite"
    UNKNOWN_CLASS = "unknown-class"
    NO_NUMBER = "no-number"
    TOMBSTONE_WITHOUT_ID = "tombstone-without-id"


class Label(NamedTuple):
    """The outcome of the event with this id. `value` is a class or a number; None withdraws an earlier label of the event."""

    id: str
    value: str | float | None


Parts = Callable[[], Headers]
"""A function that returns the headers of a record, so that they are read only if needed."""
LabelReader = Callable[[bytes | None, bytes | None, Parts], Label | Unusable]
"""A function that parses the key, the value and the headers of a record."""


def reader(settings: LabelSettings) -> LabelReader:
    """Return a function that parses records according to these settings. The function raises no exception for any record."""
    path = json_path.parse(settings.value)
    id_path = None if settings.id == KEY or settings.id.startswith(HEADER) else json_path.parse(settings.id)

    def id_outside_value(key: bytes | None, headers: Parts) -> str | None:
        if settings.id == KEY:
            return _text(key)
        name = settings.id.removeprefix(HEADER)
        header = next((value for each, value in reversed(headers() or ()) if each == name), None)
        return header if isinstance(header, str) else _text(header)

    def read(key: bytes | None, value: bytes | None, headers: Parts) -> Label | Unusable:
        id_ = None if id_path else id_outside_value(key, headers)
        if value is None:
            return Label(id_, None) if id_ is not None else Unusable.TOMBSTONE_WITHOUT_ID
        if len(value) > MAX_BYTES:
            return Unusable.OVERSIZE
        document = _parsed(value)
        if document is Unusable.NOT_JSON:
            return Unusable.NOT_JSON
        if id_path:
            id_ = _id(follow_path(document, id_path))
        return Unusable.NO_ID if id_ is None else _label(id_, follow_path(document, path))

    return read


def _parsed(value: bytes) -> Any:
    """Return the parsed JSON, or Unusable.NOT_JSON; NaN and infinity are accepted."""
    value = without_prefix(value)
    try:
        return orjson.loads(value)
    except ValueError:
        pass
    try:
        return json_documents.decode_lenient(value)
    except json_documents.UnreadableDocument:
        return Unusable.NOT_JSON


def _label(id_: str, value: Any) -> Label | Unusable:
    if isinstance(value, str):
        return Label(id_, value) if len(value) <= MAX_NAME else Unusable.UNKNOWN_CLASS
    if not isinstance(value, int | float):
        return Unusable.NO_VALUE
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the range of floats
        return Unusable.NOT_FINITE
    return Label(id_, number) if math.isfinite(number) else Unusable.NOT_FINITE


def _id(value: Any) -> str | None:
    """Return an id as text, in the form of event ids; None if it is neither a text nor an integer between -2^64 and 2^64."""
    # The range is -2^64 to 2^64.
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64 else None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")
