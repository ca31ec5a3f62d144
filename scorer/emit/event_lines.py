"""Read and check the lines of `scorer emit`: each must be a JSON value that can be an event.

Each line is parsed once, before it is written. If the first bytes show that the file is of another kind (for example Parquet),
the error names the kind and a command that converts the file.
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
"""The JSON type that each line must have. Lines of the kind "raw" are not checked."""
EXCERPT_BYTES = 60  # the bytes of a line that an error quotes
MAX_LINE_BYTES = 256 * 1_024 * 1_024  # enough for the largest event in base64
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
"""The first bytes of an unsupported file -> the kind of the file, and how to convert it to JSON lines."""


class Readable(Protocol):
    """The interface of the input: the method `readline` of a file opened in binary mode."""

    def readline(self, size: int, /) -> bytes:
        """Return at most `size` bytes of the next line, including its line end; empty at the end of the file."""


class EventLine(NamedTuple):
    """A line of the file: its `number`, counted from 1, its bytes (`data`), and its JSON value (`event`).

    `event` is None if the line was not parsed.
    """

    number: int
    data: bytes
    event: Any


def kind_of(format_: FormatName, *, own: bool, raw: bool, part: bool) -> LineKind:
    """Return the JSON type that each line must have; "raw" for lines that are not checked.

    Args:
        format_: the setting `input.format`.
        own: whether the lines are written to an input topic of this scorer.
        raw: whether the lines are written without a check.
        part: whether one field of each line is written as the event, in place of the whole line.

    Raises:
        Fatal: JSON lines cannot be events of this format (exit code 2).
    """
    if raw:
        return "raw"
    if part:
        return "object"
    if not own:
        return "any"
    if not INPUT_FORMATS[format_].is_json:
        hint = "--value FIELD --base64 writes the bytes of a field, --raw writes lines unchanged"
        raise Fatal(f"input.format is {format_}, but emit reads JSON lines", hint, USAGE)
    return "array" if format_ == "json-array" else "object"


def events(lines: Readable, kind: LineKind, skip: int = 0, *, fields: bool = False) -> Iterator[EventLine]:
    """Yield each line that is not blank, without line end and byte order mark.

    Args:
        lines: the file.
        kind: the JSON type that each line must have.
        skip: the number of lines to skip.
        fields: whether lines of the kind "raw" must be parsed, because keys, headers or times use fields of the event.

    Raises:
        Fatal: A line does not have this JSON type, or is too long (exit code 2).
    """
    for number, line in enumerate(iter(partial(lines.readline, MAX_LINE_BYTES), b""), 1):
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            hint = "write one event per line"
            raise Fatal(f"line {number} has more than {MAX_LINE_BYTES:,} bytes", hint, USAGE)
        if number <= skip:
            continue
        data = line.removesuffix(b"\n").removesuffix(b"\r")
        if kind == "raw" and data:
            yield EventLine(number, data, parse_line(data, number) if fields else None)
        elif kind != "raw" and (data := data.removeprefix(BOM) if number == 1 else data).strip():
            yield EventLine(number, data, check_line(data, number, kind))


def parse_line(line: bytes, number: int) -> Any:
    """Parse a line as JSON. Raises Fatal with exit code 2 if the line is not JSON."""
    try:
        return orjson.loads(line)
    except ValueError as error:
        fault, hint = _diagnose(line, number, str(error))
        raise Fatal(f"line {number} is not JSON: {fault}", hint, USAGE) from None


def check_line(line: bytes, number: int, kind: LineKind) -> Any:
    """Parse a line as JSON of the type `kind`. Raises Fatal with exit code 2 if it is not JSON or has another type."""
    value = parse_line(line, number)
    if kind == "object" and isinstance(value, list):
        raise Fatal(f"line {number} is an array, not one event", "jq -c '.[]' FILE | scorer emit CONFIG", USAGE)
    if (kind == "object" and not isinstance(value, dict)) or (kind == "array" and not isinstance(value, list)):
        hint = f"write a JSON {kind} on each line; --raw writes lines unchanged"
        raise Fatal(f"line {number} is {_excerpt(line)}, but an event is a JSON {kind}", hint, USAGE)
    return value


def _diagnose(line: bytes, number: int, error: str) -> tuple[str, str]:
    """Return two texts: why a line is not JSON, and a remedy."""
    usual_hint = "write one JSON value per line, in UTF-8; --raw writes lines unchanged"
    if number == 1:
        for head, (file_kind, hint) in BINARY.items():
            if line.startswith(head):
                return f"the file is {file_kind}", hint
        if line.strip() == b"[":
            return "the file is an indented array", "jq -c '.[]' FILE | scorer emit CONFIG"
        if line.strip() == b"{":
            return "the file is an indented object", "jq -c . FILE | scorer emit CONFIG"
        if (
            b"\0" not in line
            and not line.lstrip().startswith((b"{", b"["))
            and any(separator in line for separator in (b",", b";", b"\t"))
        ):
            return f"{_excerpt(line)} may be the header of a CSV file", TO_LINES.format(reader="read_csv")
    if _has_non_finite_number(line):
        return (
            f"{_excerpt(line)} has NaN or Infinity, which are not JSON",
            "write null; json.dumps(..., allow_nan=False) reports it",
        )
    return f"{error}: {_excerpt(line)}", usual_hint


def _has_non_finite_number(line: bytes) -> bool:
    """Return whether a line is invalid JSON only because of NaN or Infinity, which Python's json.dumps writes."""
    constants: list[float] = []

    def note(name: str) -> float:
        constants.append(float(name))
        return math.nan

    try:
        json.loads(line, parse_constant=note)
    except (ValueError, RecursionError):
        return False
    return bool(constants)


def _excerpt(line: bytes) -> str:
    """Return the first EXCERPT_BYTES of a line, quoted, for error messages."""
    excerpt = repr(line[:EXCERPT_BYTES].decode("utf-8", "backslashreplace"))
    return f"{excerpt}..." if len(line) > EXCERPT_BYTES else excerpt
