"""`golden.jsonl`: events with the scores they must give, run before a version goes live. One JSON object a line."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NoReturn

from model_registry.errors import Refused
from model_registry.package import binary_fields, dtypes, json_path
from model_registry.package.event_tree import WrongStep, look_up
from model_registry.package.shapes import MAX_RANK, array_fault
from model_registry.package.signature import InputField, Signature
from model_registry.untrusted_input import documents as json_documents

MAX_BYTES = 64 << 20
KEYS = {"event", "score", "tolerance"}

Score = float | str | list[Any] | dict[str, Any]


@dataclass(frozen=True, slots=True)
class GoldenExample:
    """One example. `score` is as in a score record; `tolerance` is absolute."""

    event: dict[str, Any]
    score: Score
    tolerance: float


def parse_lines(data: bytes, signature: Signature | None) -> tuple[GoldenExample, ...]:
    """The examples, each a valid event of the signature (where there is one). Raises Refused, naming the line."""
    if len(data) > MAX_BYTES:
        raise Refused(f"golden.jsonl has {len(data)} bytes; at most {MAX_BYTES} are read", "a few examples are enough")
    lines = enumerate(data.splitlines(), start=1)
    return tuple(_parse_line(line, number, signature) for number, line in lines if line.strip())


def agrees(expected: object, found: object, tolerance: float) -> bool:
    """Whether two scores are the same, each number within an absolute tolerance."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(agrees(expected[k], found[k], tolerance) for k in expected)
    if isinstance(expected, list | tuple) and isinstance(found, list):
        if len(expected) != len(found):
            return False
        classes = bool(expected) and all(map(_is_class, [*expected, *found]))
        return _same_classes(expected, found, tolerance) if classes else all(map(agrees, expected, found, repeat(tolerance)))
    if isinstance(expected, int | float) and isinstance(found, int | float):
        return math.isclose(expected, found, rel_tol=0.0, abs_tol=tolerance)
    return expected == found


def _same_classes(expected: Sequence[Any], found: Sequence[Any], tolerance: float) -> bool:
    """Whether the largest of a row are the same. Classes nearer to each other than the tolerance may have changed places."""
    if not all(agrees(one["score"], other["score"], tolerance) for one, other in zip(expected, found, strict=True)):
        return False
    scores = {one["label"]: one["score"] for one in found}
    return all(agrees(one["score"], scores.get(one["label"]), tolerance) for one in expected)


def event_fault(signature: Signature, event: dict[str, Any]) -> str | None:
    """Why an event is none of a signature's, with the field, or None if it is one."""
    for field in signature.fields:
        if fault := _field_fault(field, event):
            where = f" ({json_path.format_path(field.path)})" if field.path else ""
            return f"event field {field.name!r}{where}{fault}"
    return None


def check_has_example(signature: Signature, examples: Sequence[GoldenExample]) -> None:
    """Raises Refused where a model cannot be tried without an example: it may end the process over zeros that are no file."""
    if not examples and (field := next((one for one in signature.fields if one.raw and one.varies), None)):
        said = f"field {field.name!r} is bytes of any length, such as a file, and zeros are no example of one"
        raise Refused(said, "give one event at least in golden.jsonl")


def _parse_line(line: bytes, number: int, signature: Signature | None) -> GoldenExample:
    try:
        raw = json_documents.ANY.decode(line)
    except json_documents.UnreadableDocument as error:
        _fail(number, f"no JSON: {error}")
    if not isinstance(raw, dict) or raw.keys() != KEYS or not isinstance(raw["event"], dict):
        _fail(number, "it must be an object with exactly the keys event (an object), score and tolerance")
    if not is_score(raw["score"]):
        _fail(
            number, f"the score {raw['score']!r:.100} is no number, text, array of these, {{label, score}} or object of these"
        )
    if not _is_number(raw["tolerance"]) or raw["tolerance"] < 0:
        _fail(number, f"the tolerance {raw['tolerance']!r:.100} is no number from 0 on")
    if fault := event_fault(signature, raw["event"]) if signature else None:
        _fail(number, fault)
    return GoldenExample(raw["event"], raw["score"], float(raw["tolerance"]))


def _field_fault(field: InputField, event: dict[str, Any]) -> str | None:
    """Why an event's value does not fit a field (the place in it, a colon, the fault), or None if it does."""
    try:
        value = look_up(event, field.steps)
    except WrongStep as error:
        return f": {error}"
    if value is None:
        return ": it is required, but missing or null" if field.required else None
    if field.raw or field.array is None:
        fault = binary_fields.golden_fault(value, field) if field.raw else dtypes.event_fault(value, field.dtype)
        return fault and f": {fault}"
    found = array_fault(value, field.array, field.shape, lambda one: dtypes.event_fault(one, field.dtype))
    return found and f"{found[0]}: {found[1]}"


def is_score(value: object, depth: int = MAX_RANK + 1) -> bool:
    """Whether a score record has such: a number, text, true or false, a class, nested arrays of them, or those by name."""
    if isinstance(value, list):
        return depth > 0 and all(is_score(one, depth - 1) if not isinstance(one, dict) else _is_class(one) for one in value)
    if isinstance(value, dict):
        return bool(value) and all(not isinstance(one, dict) and is_score(one) for one in value.values())
    return isinstance(value, str | bool) or _is_number(value)


def _is_class(value: object) -> bool:
    """Whether a value is one of a row's largest."""
    if not isinstance(value, dict) or value.keys() != {"label", "score"}:
        return False
    return isinstance(value["label"], str) and _is_number(value["score"])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _fail(number: int, what: str) -> NoReturn:
    hint = 'write {"event": {...}, "score": 0.93, "tolerance": 1e-4}, the event as signature.json describes it'
    raise Refused(f"golden.jsonl line {number}: {what}", hint)
