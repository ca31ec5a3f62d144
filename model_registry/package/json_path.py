"""Paths of values in an event: `after.amount`, `items[0].price`, `"a name.with dots".x`."""

import json
import re
from collections.abc import Sequence

from model_registry.untrusted_input import json_documents

Step = str | int
"""The name of a field, or the index in an array."""

MAX_STEPS = 16
STEP = re.compile(r'(?P<dot>\.)?(?:(?P<name>[^.\[\]"\s]+)|(?P<quoted>"(?:[^"\\]|\\.)*")|\[(?P<index>[0-9]{1,6})\])')
PLAIN = re.compile(r'[^.\[\]"\s]+')


def parse(text: str) -> tuple[Step, ...]:
    """Parse a path into its steps. Raises ValueError, which names the position of the error."""
    steps: list[Step] = []
    position = 0
    while position < len(text) or not steps:
        match = STEP.match(text, position)
        is_index = match is not None and match["index"] is not None
        if match is None or (match["dot"] is not None) is not (bool(steps) and not is_index):
            syntax = 'names between dots, indexes as [0], names with dots in "quotation marks"'
            raise ValueError(f"{text!r:.100} is not a valid path: an error at character {position + 1}; a path has {syntax}")
        steps.append(_step(match))
        position = match.end()
    if len(steps) > MAX_STEPS:
        raise ValueError(f"the path {text!r:.100} has {len(steps)} steps; the limit is {MAX_STEPS} steps")
    return tuple(steps)


def parse_object_path(text: str) -> tuple[Step, ...]:
    """Parse a path whose first step must be a name, because an event is an object. Raises ValueError."""
    steps = parse(text)
    if not isinstance(steps[0], str):
        raise ValueError(f"the path {text!r:.100} must begin with a name, because an event is an object")  # noqa: TRY004
    return steps


def canonical(text: str) -> str:
    """Return the canonical text of a path, which `format_path` writes. Raises ValueError as `parse_object_path` does."""
    return format_path(parse_object_path(text))


def format_path(path: Sequence[Step]) -> str:
    """Return the text of a path; `parse` returns the same steps for this text."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{_name(step)}" for step in path]
    return "".join(parts).removeprefix(".")


def _step(match: re.Match[str]) -> Step:
    if match["index"] is not None:
        return int(match["index"])
    if match["quoted"] is None:
        return match["name"]
    try:
        name = json_documents.decode(match["quoted"], str)
    except ValueError as error:
        raise ValueError(f"{match['quoted']:.100} is not a valid quoted name: {error}") from None
    return name


def _name(name: str) -> str:
    return name if PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False)
