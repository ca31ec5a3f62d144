"""Golden examples (`golden.jsonl`): events with expected scores, used to check a version before it is served."""

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
from model_registry.untrusted_input import json_documents as json_documents

MAX_BYTES = 64 << 20
KEYS = {"event", "score", "tolerance"}

Score = float | str | list[Any] | dict[str, Any]


@dataclass(frozen=True, slots=True)
class GoldenExample:
    """An event and its expected score, in the form of a score record. Each number may differ by `tolerance` (absolute)."""

    event: dict[str, Any]
    score: Score
    tolerance: float


def parse_lines(data: bytes, signature: Signature | None) -> tuple[GoldenExample, ...]:
    """Parse golden.jsonl and check each event against the signature, if there is one.

    Raises Refused, whose message names the line.
    """
    if len(data) > MAX_BYTES:
        raise Refused(f"golden.jsonl has {len(data)} bytes; the limit is {MAX_BYTES} bytes", "a few examples are enough")
    lines = enumerate(data.splitlines(), start=1)
    return tuple(_parse_line(line, number, signature) for number, line in lines if line.strip())


def agrees(expected: object, actual: object, tolerance: float) -> bool:
    """Return whether two scores are equal; their numbers may differ by the absolute tolerance."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return expected.keys() == actual.keys() and all(agrees(expected[k], actual[k], tolerance) for k in expected)
    if isinstance(expected, list | tuple) and isinstance(actual, list):
        if len(expected) != len(actual):
            return False
        classes = bool(expected) and all(map(_is_class, [*expected, *actual]))
        return _same_classes(expected, actual, tolerance) if classes else all(map(agrees, expected, actual, repeat(tolerance)))
    if isinstance(expected, int | float) and isinstance(actual, int | float):
        return math.isclose(expected, actual, rel_tol=0.0, abs_tol=tolerance)
    return expected == actual


def _same_classes(expected: Sequence[Any], actual: Sequence[Any], tolerance: float) -> bool:
    """Return whether two lists of top classes are equal within the tolerance.

    Two classes whose scores differ by at most the tolerance may have swapped places.
    """
    if not all(agrees(first["score"], other["score"], tolerance) for first, other in zip(expected, actual, strict=True)):
        return False
    scores = {entry["label"]: entry["score"] for entry in actual}
    return all(agrees(entry["score"], scores.get(entry["label"]), tolerance) for entry in expected)


def event_fault(signature: Signature, event: dict[str, Any]) -> str | None:
    """Return the reason why an event does not fit a signature, with the field's name; None if it fits."""
    for field in signature.fields:
        if fault := _field_fault(field, event):
            where = f" ({json_path.format_path(field.path)})" if field.path and not field.source else ""
            return f"event field {field.name!r}{where}{fault}"
    return None


def check_has_example(signature: Signature, examples: Sequence[GoldenExample]) -> None:
    """Raise Refused if the model has a field of bytes of varying length, such as a file, and there are no examples.

    Without examples the model would be run with generated events, and a file of zeros may crash the model.
    """
    if not examples and (
        field := next((candidate for candidate in signature.fields if candidate.raw and candidate.varies), None)
    ):
        message = f"field {field.name!r} holds bytes of any length, such as a file, and there is no example of a valid value"
        raise Refused(message, "give at least one event in golden.jsonl")


def _parse_line(line: bytes, number: int, signature: Signature | None) -> GoldenExample:
    try:
        raw = json_documents.ANY.decode(line)
    except json_documents.UnreadableDocument as error:
        _fail(number, f"the line is not JSON: {error}")
    if not isinstance(raw, dict) or raw.keys() != KEYS or not isinstance(raw["event"], dict):
        _fail(number, "the line must be an object with exactly the keys event (an object), score and tolerance")
    if not is_score(raw["score"]):
        _fail(
            number, f"the score {raw['score']!r:.100} is not a number, a text, an array or object of these, or {{label, score}}"
        )
    if not _is_number(raw["tolerance"]) or raw["tolerance"] < 0:
        _fail(number, f"the tolerance {raw['tolerance']!r:.100} is not a number of at least 0")
    if fault := event_fault(signature, raw["event"]) if signature else None:
        _fail(number, fault)
    return GoldenExample(raw["event"], raw["score"], float(raw["tolerance"]))


def _field_fault(field: InputField, event: dict[str, Any]) -> str | None:
    """Return why an event's value does not fit a field, as "POSITION: ERROR" (no position for a scalar); None if it fits."""
    try:
        value = look_up(event, field.steps)
    except WrongStep as error:
        return f": {error}"
    if value is None:
        return ": it is required, but missing or null" if field.required else None
    if field.raw or field.array is None:
        fault = binary_fields.golden_fault(value, field) if field.raw else dtypes.event_fault(value, field.dtype)
        return fault and f": {fault}"
    fault_in_array = array_fault(value, field.array, field.shape, lambda element: dtypes.event_fault(element, field.dtype))
    return fault_in_array and f"{fault_in_array[0]}: {fault_in_array[1]}"


def is_score(value: object, depth: int = MAX_RANK + 1) -> bool:
    """Return whether a value has the form of a score.

    A score is a number, a text, a boolean or an array, or an object with one of these for each output name. The elements of an
    array are numbers, texts, booleans, classes or arrays.
    """
    if isinstance(value, list):
        return depth > 0 and all(
            is_score(element, depth - 1) if not isinstance(element, dict) else _is_class(element) for element in value
        )
    if isinstance(value, dict):
        return bool(value) and all(not isinstance(element, dict) and is_score(element) for element in value.values())
    return isinstance(value, str | bool) or _is_number(value)


def _is_class(value: object) -> bool:
    """Return whether a value is a class: an object with exactly the keys `label` and `score`."""
    if not isinstance(value, dict) or value.keys() != {"label", "score"}:
        return False
    return isinstance(value["label"], str) and _is_number(value["score"])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _fail(number: int, problem: str) -> NoReturn:
    hint = 'write {"event": {...}, "score": 0.93, "tolerance": 1e-4}, the event as signature.json describes it'
    raise Refused(f"golden.jsonl line {number}: {problem}", hint)
