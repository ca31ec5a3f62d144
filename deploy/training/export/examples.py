"""Golden examples: a few hold-out events, chosen by a rule, with the scores of the ONNX model.

The event of an example has only the fields that the signature reads, so no other content of a record is published.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from model_registry.package.event_tree import build_event
from model_registry.package.signature import InputField, Signature
from scorer.scores.outputs import Scores
from training.recipes.contract import columns
from training.snapshot.rows import LabelledRows

TOLERANCE = 1e-4  # of a score; of a regression's score beyond 1, the share of the score, or of its largest output
MAX_CLASSES = 10


def chosen(rows: LabelledRows, scores: NDArray[np.float64], signature: Signature) -> NDArray[np.intp]:
    """Choose a few hold-out events as golden examples, and return their row indices in ascending order.

    The examples are the events with the lowest, the median and the highest score: first of all events, then of the events of
    each of the first `MAX_CLASSES` classes. With K classes, events are ranked by the score of their own class. For each
    optional field, the first event without the field is added. `scores` (B,) or (B, K) are the scores of the ONNX model.
    """
    ranked = scores[np.arange(len(scores)), rows.outcomes] if scores.ndim == 2 else scores
    order = np.argsort(ranked, kind="stable")
    classes = range(len(rows.target.classes[:MAX_CLASSES]))
    groups = [order, *(order[rows.outcomes[order] == outcome] for outcome in classes)]
    positions = {int(group[at]) for group in groups if len(group) for at in (0, len(group) // 2, -1)}
    for field in signature.fields:
        if not field.required and len(absent_rows := np.flatnonzero(absent(rows.tensors, signature, field))):
            positions.add(int(absent_rows[0]))
    return np.array(sorted(positions), np.intp)


def lines(rows: LabelledRows, outputs: Mapping[str, NDArray[Any]], signature: Signature) -> Iterator[bytes]:
    """Yield the line of golden.jsonl for each row: the event, the model's score, and the tolerance."""
    answers = Scores(signature, outputs).encoded()
    for at, answer in enumerate(answers):
        event = build_event(_values(rows.tensors, signature, at))
        score = orjson.loads(answer)
        tolerance = TOLERANCE * (_size(score) if rows.target.kind == "regression" else 1.0)
        yield msgspec.json.encode({"event": event, "score": score, "tolerance": tolerance}) + b"\n"


def _size(score: Any) -> float:
    """Return the largest absolute value of a score that is a number, or an object with numbers; at least 1."""
    values = score.values() if isinstance(score, dict) else [score]
    return max([1.0, *(abs(value) for value in values if isinstance(value, int | float))])


def absent(tensors: Mapping[str, NDArray[Any]], signature: Signature, field: InputField) -> NDArray[np.bool_]:
    """Return (B,) booleans: true for the rows in which an optional field has its default value."""
    tensor, place = next(columns(signature, field))
    values = tensors[tensor].reshape(len(tensors[tensor]), -1)[:, place]
    same = np.isnan(values) if field.allows_nan else values == field.default
    matches: NDArray[np.bool_] = np.logical_and.reduce(same, axis=1)
    return matches


def _values(tensors: Mapping[str, NDArray[Any]], signature: Signature, row: int) -> Iterator[tuple[Any, Any]]:
    """Yield a pair for each field in one row: the path of the field in the event, and the value.

    If a field is not read from the record's value but, for example, from a header, its path is its name. If the default of a
    field is NaN and its value in this row contains NaN, the field is omitted.
    """
    for field in signature.fields:
        tensor, place = next(columns(signature, field))
        values = tensors[tensor][row].ravel()[place].tolist()
        if field.allows_nan and any(value != value for value in values):
            continue
        steps = (field.name,) if field.source else field.steps
        yield steps, values if field.array is not None else values[0]
