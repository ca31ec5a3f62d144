"""Where in an event a value stands: `after.amount`, `items[0].price`, `"a name.with dots".x`."""

import json
import re
from collections.abc import Sequence

from model_registry.untrusted_input import documents

Step = str | int
"""The name of a field, or the place in an array."""

MOST_STEPS = 16
STEP = re.compile(r'(?P<dot>\.)?(?:(?P<name>[^.\[\]"\s]+)|(?P<quoted>"(?:[^"\\]|\\.)*")|\[(?P<place>[0-9]{1,6})\])')
PLAIN = re.compile(r'[^.\[\]"\s]+')


def parse(text: str) -> tuple[Step, ...]:
    """The steps of a path. Raises ValueError, which says where the text is none."""
    steps: list[Step] = []
    at = 0
    while at < len(text) or not steps:
        found = STEP.match(text, at)
        is_place = found is not None and found["place"] is not None
        if found is None or (found["dot"] is not None) is not (bool(steps) and not is_place):
            wanted = 'names between dots, places as [0], names with dots in "quotation marks"'
            raise ValueError(f"{text!r:.100} is no path: what stands at character {at + 1} is none of: {wanted}")
        steps.append(_step(found))
        at = found.end()
    if len(steps) > MOST_STEPS:
        raise ValueError(f"{text!r:.100} has {len(steps)} steps; at most {MOST_STEPS} are followed")
    return tuple(steps)


def parse_object_path(text: str) -> tuple[Step, ...]:
    """The steps of a path into an object: the first is a name. Raises ValueError."""
    steps = parse(text)
    if not isinstance(steps[0], str):
        raise ValueError(f"{text!r:.100}: a path begins with a name, for an event is an object")  # noqa: TRY004
    return steps


def canonical(text: str) -> str:
    """The path into an object as `written` writes it. Raises ValueError."""
    return format_path(parse_object_path(text))


def format_path(path: Sequence[Step]) -> str:
    """The text that `parse` reads as these steps."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{_name(step)}" for step in path]
    return "".join(parts).removeprefix(".")


def _step(found: re.Match[str]) -> Step:
    if found["place"] is not None:
        return int(found["place"])
    if found["quoted"] is None:
        return found["name"]
    try:
        name = documents.decode(found["quoted"], str)
    except ValueError as error:
        raise ValueError(f"{found['quoted']:.100} is no name in quotation marks: {error}") from None
    return name


def _name(name: str) -> str:
    return name if PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False)
