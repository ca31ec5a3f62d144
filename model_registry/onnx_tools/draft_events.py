"""Reads example events from a file with one JSON object a line, and collects their values by path."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from model_registry import atomic_files
from model_registry.errors import Refused
from model_registry.package.json_path import MAX_STEPS, Step
from model_registry.untrusted_input import json_documents

MAX_EVENTS = 100  # most events that are read; a file may have more
MAX_LINE = 16 << 20  # largest size of one event in bytes
MAX_BYTES = 64 << 20  # most bytes that are read of all events together
MAX_PLACES = 4_096  # most different paths that are collected from all events
MAX_ELEMENTS_OF_OBJECTS = 8  # most elements that are read of an array of objects

Event = dict[str, Any]
Path_ = tuple[Step, ...]


def read(path: Path) -> list[Event]:
    """Read the first events of a file, at most MAX_EVENTS.

    Raises:
        Refused: A line is not an event (the message names the line), or the file has no events.
        Unreachable: The file cannot be read.
    """
    events: list[Event] = []
    remaining_bytes = MAX_BYTES
    with atomic_files.report_os_errors(f"the events {path}"), path.open("rb") as stream:
        for number in range(1, 10 * MAX_EVENTS):
            line = stream.readline(min(MAX_LINE, remaining_bytes) + 1)
            if not line or len(events) == MAX_EVENTS or (len(line) > remaining_bytes and remaining_bytes < MAX_LINE):
                break
            if len(line) > MAX_LINE:
                _fail(path, number, f"it has more than {MAX_LINE} bytes")
            remaining_bytes -= len(line)
            if line.strip():
                events.append(_event(path, number, line))
    if not events:
        raise Refused(f"{path} has no event", 'write one event on each line, such as {"distance": 1400, "carrier": "UA"}')
    return events


def values(events: Sequence[Event]) -> dict[Path_, list[Any]]:
    """Return the scalars and arrays in the events by path. Each path has one value per event; None if the value is missing.

    The paths include values inside objects and, for an array of objects, values inside its first elements.
    """
    by_path: dict[Path_, list[Any]] = {}
    for at, event in enumerate(events):
        for path, value in _leaves(event, ()):
            if path in by_path or len(by_path) < MAX_PLACES:
                by_path.setdefault(path, [None] * len(events))[at] = value
    return by_path


def _leaves(value: Any, path: Path_) -> Iterator[tuple[Path_, Any]]:
    if len(path) > MAX_STEPS:
        return
    if isinstance(value, dict):
        for name, part in value.items():
            if name:
                yield from _leaves(part, (*path, name))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for at, part in enumerate(value[:MAX_ELEMENTS_OF_OBJECTS]):
            yield from _leaves(part, (*path, at))
    elif value is not None:
        yield path, value


def _event(path: Path, number: int, line: bytes) -> Event:
    try:
        event = json_documents.ANY.decode(line)  # a decoded event can be written as a golden example
    except json_documents.UnreadableDocument as error:
        _fail(path, number, f"it is not valid JSON: {error}")
    if not isinstance(event, dict):
        _fail(path, number, "it is not a JSON object")
    return event


def _fail(path: Path, number: int, problem: str) -> NoReturn:
    raise Refused(
        f"{path} line {number}: {problem}", 'an event is an object on one line, such as {"distance": 1400, "carrier": "UA"}'
    )
