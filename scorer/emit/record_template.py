"""Make records from the lines of `scorer emit`: keys and headers by templates, values and times by paths. Pure."""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from model_registry.package import binary_fields, json_path
from model_registry.package.event_tree import look_up
from publisher.errors import USAGE, Fatal
from scorer.emit.event_lines import EventLine

MAX_TIME = 1 << 48  # Unix ms


class InputRecord(NamedTuple):
    """The record of one line. `time_ms` is Unix ms; None means the time of writing."""

    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]
    time_ms: int | None


@dataclass(frozen=True, slots=True)
class RecordTemplate:
    """Makes a record from a line.

    Attributes:
        key: a template over the fields of the event; None for no key.
        headers: names and values; a value with braces is a template.
        value: a field to write instead of the line, and whether it is in base64; None for the line.
        time_field: the path of the event's time; None for the time of writing.
    """

    key: str | None = None
    headers: Sequence[tuple[str, str]] = ()
    value: tuple[str, bool] | None = None
    time_field: str | None = None

    @property
    def reads_fields(self) -> bool:
        """Whether a record needs the parsed fields of its event."""
        return (
            self.key is not None or self.value is not None or self.time_field is not None or any(map(_templated, self.headers))
        )

    def record(self, line: EventLine) -> InputRecord:
        """Return the record of a line.

        Raises:
            Fatal: The event lacks a field (exit code 2).
        """
        event = line.event
        number = line.number
        named = [
            (name, fill_in(text, "header", event, number) if _templated((name, text)) else text.encode())
            for name, text in self.headers
        ]
        at = None if self.time_field is None else time_of(self.time_field, event, number)
        value = value_of(*self.value, event, number) if self.value else line.data
        return InputRecord(key_of(self.key, event, number), value, named, at)


def _templated(header: tuple[str, str]) -> bool:
    return "{" in header[1] or "}" in header[1]


def key_of(template: str | None, event: Any, number: int) -> bytes | None:
    """Return the key of an event by a template, `{carrier}-{flight}`. Raises Fatal if the event lacks a field."""
    return None if template is None else fill_in(template, "key", event, number)


@lru_cache(256)
def _steps(path: str) -> tuple[str | int, ...]:
    """Parse a path. Raises ValueError."""
    return tuple(json_path.parse_object_path(path))


class _Formatter(string.Formatter):
    """A formatter whose field names are paths into an event, `{items[0].sku}`, or Python's, `{after[id]}`."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        """Return the value at a path. Raises KeyError without a value, WrongStep if a step is not an object or array."""
        try:
            steps = _steps(field_name)
        except ValueError:
            value, _ = super().get_field(field_name, args, kwargs)
            return value, field_name
        if (value := look_up(kwargs, steps)) is None:
            raise KeyError(field_name)
        return (str(value).lower() if isinstance(value, bool) else value), field_name


def fill_in(template: str, what: str, event: Any, number: int) -> bytes:
    """Fill in a template with the fields of an event. Raises Fatal, naming the option `what`, if the event lacks one."""
    try:
        return _Formatter().vformat(template, (), event).encode()
    except KeyError as error:
        fault = f"line {number}: the event has no field {error.args[0]!r} for the {what} {template!r}"
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        fault = f"line {number}: no {what} {template!r}: {error}"
    raise Fatal(fault, f"check --{what} and the event; write literal braces twice", USAGE)


def value_of(field: str, base64: bool, event: Any, number: int) -> bytes:
    """Return the text of a field, or its bytes decoded from base64. Raises Fatal without a value."""
    try:
        value = event[field]
        if base64:
            return binary_fields.from_base64(value)
        return value.encode() if isinstance(value, str) else orjson.dumps(value)
    except (KeyError, TypeError, IndexError):
        fault = f"line {number}: the event has no field {field!r} for its value"
    except ValueError as error:
        fault = f"line {number}: field {field!r}: {error}"
    raise Fatal(fault, "check --value and the event", USAGE)


def time_of(field: str, event: Any, number: int) -> int:
    """Return the time of an event in Unix ms, from Unix ms or ISO 8601 (by default UTC) at a path. Raises Fatal."""
    try:
        value = look_up(event, _steps(field))
        at = value
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            at = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
        if isinstance(at, int) and not isinstance(at, bool) and 0 <= at < MAX_TIME:
            return at
        fault = f"line {number}: {value!r:.100} at {field!r} is not a time"
    except (TypeError, ValueError) as error:
        fault = f"line {number}: no time at {field!r}: {error}"
    raise Fatal(fault, "check --time and the event: ISO 8601, or Unix milliseconds", USAGE)
