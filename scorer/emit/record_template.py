"""Make records from the lines of `scorer emit`: keys and headers from templates, values and times from fields.

This module does no I/O.
"""

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
    """The record to write for one line. `time_ms` is its timestamp in Unix ms; None for the time of writing."""

    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]
    time_ms: int | None


@dataclass(frozen=True, slots=True)
class RecordTemplate:
    """Makes a record from each line, according to the options of `scorer emit`.

    A template is a text with paths of event fields in braces, for example `{carrier}-{flight}`.

    Attributes:
        key: the template of the key; None for records without a key.
        headers: names and values of headers. A value with braces is a template.
        value: (field, True if it is in base64): the event field that is written as the value; None to write the whole line.
        time_field: the path of the field with the event's time; None for the time of writing.
    """

    key: str | None = None
    headers: Sequence[tuple[str, str]] = ()
    value: tuple[str, bool] | None = None
    time_field: str | None = None

    @property
    def reads_fields(self) -> bool:
        """Whether the lines must be parsed, because key, headers, value or time use event fields."""
        return (
            self.key is not None or self.value is not None or self.time_field is not None or any(map(_templated, self.headers))
        )

    def record(self, line: EventLine) -> InputRecord:
        """Return the record to write for a line.

        Raises:
            Fatal: The event has no usable field for the key, a header, the value or the time (exit code 2).
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
    """Return the key that results from the template; None if there is no template. Raises Fatal if the event lacks a field."""
    return None if template is None else fill_in(template, "key", event, number)


@lru_cache(256)
def _steps(path: str) -> tuple[str | int, ...]:
    """Parse the path of a field, for example `items[0].sku`, into its steps. Raises ValueError."""
    return tuple(json_path.parse_object_path(path))


class _Formatter(string.Formatter):
    """A string formatter that reads the field names in a template as paths into an event, for example `{items[0].sku}`.

    A field name that is not a valid path is resolved by Python's formatter, for example `{after[id]}`.
    """

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        """Return the value at the path `field_name`, and the path.

        Raises:
            KeyError: the event has no value, or null, at the path.
            WrongStep: the path continues through a value that is not an object or array.
        """
        try:
            steps = _steps(field_name)
        except ValueError:
            value, _ = super().get_field(field_name, args, kwargs)
            return value, field_name
        if (value := look_up(kwargs, steps)) is None:
            raise KeyError(field_name)
        return (str(value).lower() if isinstance(value, bool) else value), field_name


def fill_in(template: str, what: str, event: Any, number: int) -> bytes:
    """Fill in a template with fields of an event.

    Args:
        template: the template.
        what: the option from which the template comes, "key" or "header", for error messages.
        event: the parsed line.
        number: the number of the line, for error messages.

    Raises:
        Fatal: The event lacks a field of the template, or the template is invalid.
    """
    try:
        return _Formatter().vformat(template, (), event).encode()
    except KeyError as error:
        fault = f"line {number}: the event has no field {error.args[0]!r} for the {what} {template!r}"
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        fault = f"line {number}: no {what} {template!r}: {error}"
    raise Fatal(fault, f"check --{what} and the event; write literal braces twice", USAGE)


def value_of(field: str, base64: bool, event: Any, number: int) -> bytes:
    """Return the value of a record from a field of the event. Raises Fatal if the field is missing or not base64.

    If `base64` is true, the field is decoded. Otherwise a text is written unchanged, and any other value is written as JSON.
    """
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
    """Return the time of an event in Unix ms.

    The field at the path `field` has the time as an integer in Unix ms, or as ISO 8601 text, which is in UTC by default. Raises
    Fatal if the field is not a time.
    """
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
