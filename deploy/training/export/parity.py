"""Compare the scores of an ONNX model with the scores of the trained model that it was exported from.

Both models score the original events, events without each optional field, and events with new category names.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.package.signature import InputField, Signature
from publisher.errors import REFUSED, Fatal
from scorer.evaluation.label_columns import RecordPosition
from training.recipes import Fitted
from training.recipes.contract import columns
from training.snapshot.rows import LabelledRows
from training.snapshot.target import Target

LARGEST = 1e-6  # the maximum difference of two scores
BATCH = 1_024
CHANGED = 2_000  # the number of events that are also scored with a change
NEW = "\N{REPLACEMENT CHARACTER}new"  # a name that training never saw

Tensors = Mapping[str, NDArray[Any]]
Run = Callable[[dict[str, NDArray[Any]]], dict[str, NDArray[Any]]]


def scores(run: Run, signature: Signature, target: Target, tensors: Tensors) -> NDArray[np.float64]:
    """Return the scores of the rows as the ONNX model computes them, in the shape of `Fitted.scores`.

    The scores are read from the output on which the signature bases its decision, or from its first output.

    Raises Fatal (exit code 3) if the output is not numeric, or has the wrong number of columns for two classes or a regression.
    The columns of K classes are not checked: see `check_shape`.
    """
    output = signature.decided
    count = len(next(iter(tensors.values())))
    batches = [
        run({name: tensor[at : at + BATCH] for name, tensor in tensors.items()})[output.tensor] for at in range(0, count, BATCH)
    ]
    values = np.concatenate([part.reshape(len(part), -1) for part in batches])
    try:
        rows = values.astype(np.float64)
    except ValueError:
        message = f"the output {output.tensor!r} of the model has {values[0, 0]!r:.100} for an event, which is not a number"
        raise Fatal(message, "name the output with the scores in the signature", REFUSED) from None
    if target.kind == "classes":
        return rows
    # The row has the probabilities of both classes, or the probability of the second class, or a number.
    found, most = rows.shape[1], 2 if target.kind == "binary" else 1
    if found <= (output.index or 0) or (output.index is None and found > most):
        place = f"at most {most}" if output.index is None else f"more than {output.index} (output.index)"
        message = f"the output {output.tensor!r} of the model has {found} numbers for each event, but it must have {place}"
        raise Fatal(message, "correct the model, or output.index in the signature", REFUSED)
    return rows[:, -1 if output.index is None else output.index]


def check_shape(exported: NDArray[np.float64], target: Target) -> None:
    """Check that the scores of a target with K classes are rows of K numbers. Raises Fatal (exit code 3)."""
    if target.kind == "classes" and exported.shape[1] != len(target.classes):
        names = ", ".join(target.classes)
        message = f"the model gives {exported.shape[1]} numbers for each event, but there are {len(target.classes)} classes"
        raise Fatal(message, f"give a probability for each of {names}, in this order", REFUSED)


def check_finite(exported: NDArray[np.float64], rows: LabelledRows) -> None:
    """Check that all scores are finite. Raises Fatal (exit code 3), which names the first event that fails."""
    faulty = ~np.isfinite(exported).reshape(len(exported), -1).all(axis=1)
    if faulty.any():
        at = int(faulty.argmax())
        message = f"the model scores the event {rows.places.of(at)} {exported[at].tolist()}, which is not finite"
        hint = "a score must be a finite number: check how the recipe treats missing values and large numbers"
        raise Fatal(f"{message}; {int(faulty.sum())} of {len(exported)} held-out events have such a score", hint, REFUSED)


def check(run: Run, fitted: Fitted, rows: LabelledRows, signature: Signature) -> tuple[NDArray[np.float64], float]:
    """Score the rows with the ONNX model and with `fitted`; return the ONNX scores and the largest difference.

    The difference is also measured on changed copies of the events: without each optional field, and with new category names.

    Raises:
        Fatal: Exit code 3 if a difference exceeds 1e-6. For scores with an absolute value above 1, the limit is 1e-6 of the
            score. The message names the event with the largest difference.
    """
    first: list[NDArray[np.float64]] = []
    worst = 0.0
    for changed, tensors in _cases(rows.tensors, signature):
        exported = scores(run, signature, rows.target, tensors)
        trained = fitted.scores(tensors)
        first = first or [exported]
        difference = np.nan_to_num(np.abs(exported - trained) / np.maximum(np.abs(trained), 1), nan=np.inf)
        if difference.ndim == 2:
            difference = difference.max(axis=1)
        at = int(difference.argmax())
        worst = max(worst, float(difference[at]))
        if worst > LARGEST:
            places = rows.places
            place = RecordPosition((places.topics[places.topic[at]], int(places.partition[at])), int(places.offset[at]))
            scores_text = f"{exported[at].tolist()}, but the trained model {trained[at].tolist()}"
            message = f"the ONNX model scores the event {place}{changed} {scores_text}"
            raise Fatal(
                f"{message}; the largest allowed difference is {LARGEST}", "set other parameters, or another recipe", REFUSED
            )
    return first[0], worst


def _cases(tensors: Tensors, signature: Signature) -> Iterator[tuple[str, Tensors]]:
    """Yield the tensors to compare: the original events, then the changed copies of the events.

    Each item is a pair of a text and the tensors. The text describes the change; it is empty for the original events.
    """
    yield "", tensors
    few = {name: tensor[:CHANGED] for name, tensor in tensors.items()}
    everything: Tensors = few
    for field in signature.fields:
        if not field.required:
            yield f" without {field.name!r}", _with(few, signature, field, field.default)
            everything = _with(everything, signature, field, field.default)
        if field.dtype == "string":
            yield f" with a new {field.name!r}", _with(few, signature, field, NEW)
            everything = _with(everything, signature, field, NEW)
    yield " with all fields absent or new", everything


def _with(tensors: Tensors, signature: Signature, field: InputField, value: Any) -> Tensors:
    """Return a copy of the tensors in which a field has this value in every row."""
    changed = dict(tensors)
    for name, place in columns(signature, field):
        changed[name] = changed[name].copy()
        changed[name].reshape(len(changed[name]), -1)[:, place] = value
    return changed
