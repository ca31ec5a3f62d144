"""Make records of the lines that `scorer emit` reads: keys and headers by templates, values and times by paths. Pure."""

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

MAX_TIME = 1 << 48  # Unix ms; what is larger is no time


class InputRecord(NamedTuple):
    """What is written for one line; `time_ms` (Unix ms) None is the time of writing."""

    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]
    time_ms: int | None


@dataclass(frozen=True, slots=True)
class RecordTemplate:
    """How a line becomes a record.

    Attributes:
        key: a template over the fields of the event; None: no key.
        headers: names and values; a value with braces is a template too.
        value: a field that is written in place of the line, and whether it is in base64; None: the line itself.
        time_field: the path of the event's time; None: the time of writing.
    """

    key: str | None = None
    headers: Sequence[tuple[str, str]] = ()
    value: tuple[str, bool] | None = None
    time_field: str | None = None

    @property
    def reads_fields(self) -> bool:
        """Whether a record needs fields of its event."""
        return (
            self.key is not None or self.value is not None or self.time_field is not None or any(map(_templated, self.headers))
        )

    def record(self, line: EventLine) -> InputRecord:
        """Return the record of a line.

        Raises:
            Fatal: with code 2 if the event lacks a field.
        """
        event, number = line.event, line.number
        named = [
            (name, filled(text, "header", event, number) if _templated((name, text)) else text.encode())
            for name, text in self.headers
        ]
        at = None if self.time_field is None else time_of(self.time_field, event, number)
        value = value_of(*self.value, event, number) if self.value else line.data
        return InputRecord(key_of(self.key, event, number), value, named, at)


def _templated(header: tuple[str, str]) -> bool:
    return "{" in header[1] or "}" in header[1]


def key_of(template: str | None, event: Any, number: int) -> bytes | None:
    """Return the key of an event by a template over its fields, `{carrier}-{flight}`. Raises Fatal if it lacks one."""
    return None if template is None else filled(template, "key", event, number)


@lru_cache(256)
def _steps(path: str) -> tuple[str | int, ...]:
    """Return the steps of a path. Raises ValueError."""
    return tuple(json_path.parse_object_path(path))


class _Formatter(string.Formatter):
    """A template whose names are paths into an event, `{items[0].sku}`; also `{after[id]}`."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        """Return the value at a path. Raises KeyError if the event has none, WrongStep if a step is no object or array."""
        try:
            steps = _steps(field_name)
        except ValueError:
            value, _ = super().get_field(field_name, args, kwargs)
            return value, field_name
        if (value := look_up(kwargs, steps)) is None:
            raise KeyError(field_name)
        return (str(value).lower() if isinstance(value, bool) else value), field_name


def filled(template: str, what: str, event: Any, number: int) -> bytes:
    """Return a template with the fields of an event. Raises Fatal, naming the option `what`, if the event lacks one."""
    try:
        return _Formatter().vformat(template, (), event).encode()
    except KeyError as error:
        fault = f"line {number}: the event has no field {error.args[0]!r} for the {what} {template!r}"
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        fault = f"line {number}: no {what} {template!r}: {error}"
    raise Fatal(fault, f"check --{what} and the event; braces that stand for themselves are written twice", USAGE)


def value_of(field: str, base64: bool, event: Any, number: int) -> bytes:
    """Return the text of a field, or the bytes that it is in base64. Raises Fatal if there is none."""
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
    """Return the time of an event in Unix ms: a number at a path, or ISO 8601 text, UTC if it names no zone. Raises Fatal."""
    try:
        value = look_up(event, _steps(field))
        at = value
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            at = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
        if isinstance(at, int) and not isinstance(at, bool) and 0 <= at < MAX_TIME:
            return at
        fault = f"line {number}: {value!r:.100} at {field!r} is no time"
    except (TypeError, ValueError) as error:
        fault = f"line {number}: no time at {field!r}: {error}"
    raise Fatal(fault, "check --time and the event: ISO 8601, or Unix milliseconds", USAGE)
