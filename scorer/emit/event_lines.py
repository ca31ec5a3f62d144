"""Read and check the lines that `scorer emit` writes: each must be a JSON value that can be an event.

A line is parsed once. One that is no event is rejected before it is written, with the file's real kind where its bytes show it.
"""

import json
import math
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

import orjson

from publisher.errors import USAGE, Fatal
from scorer.settings.input_formats import INPUT_FORMATS, FormatName

LineKind = Literal["object", "array", "any", "raw"]
"""What each line must be; `raw` lines are not checked."""
SHOWN = 60  # bytes of a line in an error
LONGEST = 256 * 1_024 * 1_024  # bytes of a line: base64 of the largest event fits
BOM = b"\xef\xbb\xbf"
TO_LINES = "python -c \"import pandas; pandas.{reader}('FILE').to_json('events.jsonl', orient='records', lines=True)\""
BINARY = {
    b"PAR1": ("a Parquet file", TO_LINES.format(reader="read_parquet")),
    b"Obj\x01": ("an Avro container file", "python -m fastavro FILE > events.jsonl"),
    b"ORC": ("an ORC file", TO_LINES.format(reader="read_orc")),
    b"ARROW1": ("an Arrow file", TO_LINES.format(reader="read_feather")),
    b"\x1f\x8b": ("compressed with gzip", "zcat FILE | scorer emit CONFIG"),
    b"\x28\xb5\x2f\xfd": ("compressed with Zstandard", "zstdcat FILE | scorer emit CONFIG"),
    b"PK\x03\x04": ("a ZIP archive or a workbook", "extract it, or export it as JSON lines"),
    b"\xff\xfe": ("in UTF-16", "iconv -f UTF-16 -t UTF-8 FILE | scorer emit CONFIG"),
    b"\xfe\xff": ("in UTF-16", "iconv -f UTF-16 -t UTF-8 FILE | scorer emit CONFIG"),
}
"""What files that are no JSON lines begin with, what they are, and how to make JSON lines of them."""


class Readable(Protocol):
    """A binary file."""

    def readline(self, size: int, /) -> bytes:
        """Return the next line with its end, at most `size` bytes of it; nothing at the end of the file."""


class EventLine(NamedTuple):
    """A line of the file: its number from 1, its bytes, and the value that they are in JSON, None if it was not parsed."""

    number: int
    data: bytes
    event: Any


def kind_of(format_: FormatName, *, own: bool, raw: bool, part: bool) -> LineKind:
    """Return what each line must be.

    Args:
        format_: the setting `input.format`.
        own: whether the lines go to an input topic of this scorer.
        raw: whether lines are written without a check.
        part: whether a field of each line is written in place of the line.

    Raises:
        Fatal: with code 2 if JSON lines cannot be events of this format.
    """
    if raw:
        return "raw"
    if part:
        return "object"
    if not own:
        return "any"
    if not INPUT_FORMATS[format_].is_json:
        hint = "--value FIELD --base64 writes the bytes that a field holds, --raw writes lines as they are"
        raise Fatal(f"input.format is {format_}, and the lines of emit are JSON", hint, USAGE)
    return "array" if format_ == "json-array" else "object"


def events(lines: Readable, kind: LineKind, skip: int = 0, *, fields: bool = False) -> Iterator[EventLine]:
    """Return each line that is not blank, without its end and without a byte order mark.

    Args:
        lines: the file.
        kind: what each line must be.
        skip: how many lines are passed over unread.
        fields: whether the fields of raw lines are needed too.

    Raises:
        Fatal: with code 2 if a line is not what it must be.
    """
    for number, line in enumerate(iter(partial(lines.readline, LONGEST), b""), 1):
        if len(line) == LONGEST and not line.endswith(b"\n"):
            hint = "write one event on each line; is it a file of lines?"
            raise Fatal(f"line {number} has more than {LONGEST:,} bytes", hint, USAGE)
        if number <= skip:
            continue
        data = line.removesuffix(b"\n").removesuffix(b"\r")
        if kind == "raw" and data:
            yield EventLine(number, data, parsed(data, number) if fields else None)
        elif kind != "raw" and (data := data.removeprefix(BOM) if number == 1 else data).strip():
            yield EventLine(number, data, checked(data, number, kind))


def parsed(line: bytes, number: int) -> Any:
    """Return the value of a line. Raises Fatal (2) if it is no JSON."""
    try:
        return orjson.loads(line)
    except ValueError as error:
        what, hint = _explained(line, number, str(error))
        raise Fatal(f"line {number} is not JSON: {what}", hint, USAGE) from None


def checked(line: bytes, number: int, kind: LineKind) -> Any:
    """Return the value of a line. Raises Fatal (2) unless it is JSON of this kind."""
    value = parsed(line, number)
    if kind == "object" and isinstance(value, list):
        raise Fatal(f"line {number} is an array, and not one event", "jq -c '.[]' FILE | scorer emit CONFIG", USAGE)
    if (kind == "object" and not isinstance(value, dict)) or (kind == "array" and not isinstance(value, list)):
        hint = f"write a JSON {kind} on each line; --raw writes lines as they are"
        raise Fatal(f"line {number} is {_shown(line)}, and an event is a JSON {kind}", hint, USAGE)
    return value


def _explained(line: bytes, number: int, error: str) -> tuple[str, str]:
    """Return why a line is no JSON, and what to do."""
    raw = "one JSON value a line, in UTF-8; --raw writes lines as they are"
    if number == 1:
        for head, (what, hint) in BINARY.items():
            if line.startswith(head):
                return f"the file is {what}", hint
        if line.strip() == b"[":
            return "the file is an indented array", "jq -c '.[]' FILE | scorer emit CONFIG"
        if line.strip() == b"{":
            return "the file is an indented object", "jq -c . FILE | scorer emit CONFIG"
        if (
            b"\0" not in line
            and not line.lstrip().startswith((b"{", b"["))
            and any(mark in line for mark in (b",", b";", b"\t"))
        ):
            return f"{_shown(line)} may be the head of a CSV file", TO_LINES.format(reader="read_csv")
    if _has_no_number(line):
        return (
            f"{_shown(line)} has NaN or Infinity, which JSON does not have",
            "write null; json.dumps(..., allow_nan=False) reports it",
        )
    return f"{error}: {_shown(line)}", raw


def _has_no_number(line: bytes) -> bool:
    """Return whether a line is JSON but for numbers that are not finite, as Python's json.dumps writes them."""
    found: list[float] = []

    def note(name: str) -> float:
        found.append(float(name))
        return math.nan

    try:
        json.loads(line, parse_constant=note)
    except (ValueError, RecursionError):
        return False
    return bool(found)


def _shown(line: bytes) -> str:
    """Return the beginning of a line for an error."""
    text = line[:SHOWN].decode("utf-8", "backslashreplace")
    shown = repr(text)
    return f"{shown}..." if len(line) > SHOWN else shown
