"""A probe that checks whether a score depends on the other events of its batch, on their order, or on padding.

It also checks that the model answers all lengths that the signature allows. The events are golden examples and variations of
them; `run` is injected, so that push, check and load share the probe. The probe only compares answers with each other: the
golden examples decide whether a score is correct.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.errors import Refused
from model_registry.package import model_outputs
from model_registry.package.model_inputs import Tensors, neutral_rows, ragged
from model_registry.package.padding import LengthPlan
from model_registry.package.shapes import VARIES
from model_registry.package.signature import Signature, TensorInput

SECONDS = 10.0  # after this time each comparison is limited to one batch of FEWEST events
FEWEST = 2
MOST_GOLDEN = 3
FACTORS = (0.5, 1.25)  # of the numbers of a golden example, for its variations
MOST_ROWS = 64  # of a batch
LENGTHS = (12, 20)  # of generated events
DIFFERENCE = 1e-4  # absolute for numbers up to 1, relative for larger ones
DIFFERENCE_HALF = 5e-3  # of float16, and on devices that multiply with as few bits (TF32)

Run = Callable[[Tensors], Mapping[str, NDArray[Any]]]
"""The outputs of one run, by tensor name: for (B, n) rows by tensor name. See `scorer.backends.base.Model.run`."""


@dataclass(frozen=True, slots=True)
class _ProbedEvent:
    """One event: its rows (one for each tensor), its lengths by axis, and the model's answer to the event alone.

    `exact` states whether the model ran it at its exact length, without padding.
    """

    name: str
    rows: Tensors
    lengths: tuple[int, ...]
    answer: Mapping[str | None, NDArray[Any]]
    exact: bool


@dataclass(frozen=True, slots=True)
class _ScoreDifference:
    """The difference between an answer alone and in a batch; `excess` is its ratio to the allowed difference."""

    excess: float
    size: float
    allowed: float
    text: str


def check_batch_independence(
    signature: Signature,
    golden: Tensors | None,
    run: Run,
    failed: type[Exception],
    *,
    most: int = MOST_ROWS,
    coarse: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Compare the answers to events alone with the answers to the same events in batches.

    An event that the model does not answer alone is not compared. A model that answers an event must also answer an event of
    the largest lengths that the signature allows.

    Args:
        signature: The model's signature. A model that takes one event at a time only runs one event twice.
        golden: The decoded rows of the golden examples, (B, n) by tensor name; None if there are none.
        run: One run of the model.
        failed: The exception that `run` raises if the model does not answer.
        most: The largest batch that will be served.
        coarse: The device may round as float16 does.
        clock: The time in seconds.

    Raises:
        Refused: A difference exceeds the tolerance, or the model answers events alone, but not together or not at other
            lengths.
    """
    probe = _Probe(signature, run, failed, most, DIFFERENCE_HALF if coarse else DIFFERENCE, clock)
    rows = _golden(signature, golden) if golden else _generated(signature)
    events = probe.answered(rows[:1] if signature.alone else rows)
    if events:
        probe.check_repeated(events[0])
    if longest := _resized(signature, rows[0][1], longest=True):
        probe.check_lengths(longest, [] if golden else [row for _, row in rows], events)
    if signature.alone:
        return
    padded = any(tensor.pad is not None for tensor in signature.fed if tensor.varies)
    for group in _grouped(events, lambda event: (event.lengths, event.exact)):
        if not padded or (group[0].exact and len(group) > 1):
            probe.check_batches(group, "beside other events", _company_hint(signature), exact=padded)
    if padded:
        fixed = _unpadded_axes(signature)
        for group in _grouped(events, lambda event: tuple(event.lengths[at] for at in fixed)):
            probe.check_batches(group, "padded to the length of others", _padding_hint(signature))


class _Probe:
    """Runs the comparisons of one probe within its time limit."""

    def __init__(
        self,
        signature: Signature,
        run: Run,
        failed: type[Exception],
        most: int,
        rounding: float,
        clock: Callable[[], float],
    ) -> None:
        self._signature = signature
        self._run = run
        self._failed = failed
        self._clock = clock
        self._most = most
        self._rounding = rounding
        self._lengths = LengthPlan(signature) if signature.varies else None
        self._end = clock() + SECONDS

    def answered(self, rows: Sequence[tuple[str, Tensors]]) -> list[_ProbedEvent]:
        """Return the events that the model answers alone, run at their exact length if possible."""
        events: list[_ProbedEvent] = []
        for name, tensors in rows:
            if len(events) >= FEWEST and self._late():
                break
            ways = (False,) if self._lengths is None or self._signature.alone else (True, False)
            for exact in ways:
                try:
                    answer = self._answers(_stacked(self._signature, tensors) if exact else tensors)
                except (self._failed, model_outputs.OutputMismatch):
                    continue
                events.append(_ProbedEvent(name, tensors, self._lengths_of(tensors), answer, exact))
                break
        return events

    def check_repeated(self, event: _ProbedEvent) -> None:
        """Raise Refused if the model gives another answer to the same event."""
        rows = _stacked(self._signature, event.rows) if event.exact else event.rows
        repeated = self._answers(rows)
        if worst := max(self._differences([event], repeated), key=lambda difference: difference.excess, default=None):
            hint = "export it for inference, without dropout or random numbers"
            raise Refused(f"the model gives two answers to one event: {worst.text}", hint)

    def check_lengths(self, longest: Tensors, generated: Sequence[Tensors], events: Sequence[_ProbedEvent]) -> None:
        """Raise Refused unless the model answers an event of the largest lengths, and shorter events too.

        Args:
            longest: One event of the largest lengths.
            generated: The generated events; empty if there are golden examples, which have lengths of their own.
            events: The events that the model answers.
        """
        if events and self._late():
            return
        most = self._lengths_of(longest)
        lengths = " and ".join(map(str, most))
        axis = "or export the model with this axis dynamic: exporters fix it at the length of their example"
        try:
            self._answers(longest)
        except (self._failed, model_outputs.OutputMismatch) as error:
            if events:
                fault = f"the model does not answer an event of the largest length, {lengths}: {error}"
                raise Refused(fault, f'correct "max_length", {axis}') from error
            return
        shorter = any(self._lengths_of(row) != most for row in generated)
        if shorter and all(event.lengths == most for event in events):
            raise Refused(
                f"the model does not answer generated events that are shorter than the largest length, {lengths}",
                f"give an example of a shorter one in golden.jsonl, {axis}",
            )

    def check_batches(self, group: Sequence[_ProbedEvent], where: str, hint: str, *, exact: bool = False) -> None:
        """Compare two batches of these events: another order, another size. Raise Refused."""
        differences: list[_ScoreDifference] = []
        rows_at_once = min(self._most, self._most_rows(group))
        first = group[: min(rows_at_once, FEWEST)] if self._late() else group[:rows_at_once]
        for batch in (first, [*reversed(group), *group, group[0]][:rows_at_once]):
            if batch is not first and self._late():
                break
            rows = _joined([event.rows for event in batch])
            try:
                together = self._answers(_stacked(self._signature, rows) if exact else rows)
            except (self._failed, model_outputs.OutputMismatch) as error:
                raise Refused(f"the model answers events alone, but not {len(batch)} together: {error}", hint) from error
            differences += self._differences(batch, together)
        if worst := max(differences, key=lambda difference: difference.excess, default=None):
            measured = f"the largest difference is {worst.size:.3g}, and {worst.allowed:.3g} is allowed"
            raise Refused(f"a score depends on its batch: {where}, {worst.text}; {measured}", hint)

    def _differences(
        self, batch: Sequence[_ProbedEvent], batch_answers: Mapping[str | None, NDArray[Any]]
    ) -> Iterator[_ScoreDifference]:
        """Yield the answers that differ by more than the tolerance, the largest difference of each event and output."""
        for at, event in enumerate(batch):
            for output, alone in event.answer.items():
                difference = _difference(alone[0], batch_answers[output][at], self._signature.batch_tolerance, self._rounding)
                if difference is not None:
                    excess, size, allowed, numbers = difference
                    of = f"output {output!r} of " if output else ""
                    yield _ScoreDifference(excess, size, allowed, f"{of}{event.name} {numbers}")

    def _answers(self, rows: Tensors) -> dict[str | None, NDArray[Any]]:
        return model_outputs.read_outputs(self._signature, self._run(rows))

    def _lengths_of(self, rows: Tensors) -> tuple[int, ...]:
        return () if self._lengths is None else tuple(self._lengths.lengths(rows)[0].tolist())

    def _most_rows(self, group: Sequence[_ProbedEvent]) -> int:
        """Return the number of rows of the largest lengths that a scorer runs at once."""
        if self._lengths is None:
            return MOST_ROWS
        return self._lengths.most_rows([max(lengths) for lengths in zip(*(event.lengths for event in group), strict=True)])

    def _late(self) -> bool:
        return self._clock() > self._end


def _difference(alone: Any, together: Any, tolerance: float | None, rounding: float) -> tuple[float, float, float, str] | None:
    """Return the largest difference of two answers; None if the tolerance allows it.

    Returns:
        The ratio of the difference to the allowed one, the difference, the allowed difference, and both answers as text.
    """
    alone = np.asarray(alone)
    together = np.asarray(together)
    if alone.shape != together.shape:
        return math.inf, math.inf, 0.0, f"has the shape {alone.shape} alone, but {together.shape}"
    if alone.dtype.kind not in "iuf":
        at = np.flatnonzero((alone != together).ravel())
        return (math.inf, math.inf, 0.0, _numbers(alone, together, int(at[0]))) if len(at) else None
    first = alone.astype(np.float64).ravel()
    second = together.astype(np.float64).ravel()
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore"):
        sizes = np.where(same, 0.0, np.nan_to_num(np.abs(first - second), nan=math.inf, posinf=math.inf))
    size = float(sizes.max(initial=0.0))
    most = DIFFERENCE_HALF if alone.dtype == np.float16 else rounding
    relative = most * max(1.0, float(np.abs(first[np.isfinite(first)]).max(initial=0.0)))
    allowed = tolerance or (relative if alone.dtype.kind == "f" else 0.0)
    if size <= allowed:
        return None
    return size / allowed if allowed else math.inf, size, allowed, _numbers(alone, together, int(sizes.argmax()))


def _numbers(alone: NDArray[Any], together: NDArray[Any], at: int) -> str:
    place = f" at {list(map(int, np.unravel_index(at, alone.shape)))}" if alone.ndim else ""
    first = alone.ravel()[at]
    second = together.ravel()[at]
    if alone.dtype.kind == "f":
        return f"scores {first:.6g}{place} alone, but {second:.6g}"
    return f"scores {str(first)!r:.60}{place} alone, but {str(second)!r:.60}"


def _golden(signature: Signature, rows: Tensors) -> list[tuple[str, Tensors]]:
    """Return golden examples from the shortest to the longest, and variations of the first one.

    No bytes (such as a file) are generated, and no nonzero number becomes zero, because either may crash a model.
    """
    count = len(next(iter(rows.values())))
    order = np.arange(count)
    if signature.varies:
        order = np.argsort(LengthPlan(signature).lengths(rows).sum(axis=1), kind="stable")
    chosen = order[np.unique(np.linspace(0, count - 1, min(count, MOST_GOLDEN)).astype(int))]
    events = [(f"golden example {at + 1}", _row(rows, at)) for at in chosen.tolist()]
    name, first = events[0]
    for factor in FACTORS:
        events.append((f"{name} with its numbers times {factor}", _varied(signature, first, factor)))
    if longer := _resized(signature, first):
        events.append((f"{name} at another length", longer))
    return events


def _generated(signature: Signature) -> list[tuple[str, Tensors]]:
    """Generate events for a version without golden examples: zeros, then numbers from 0 to 1."""
    events = []
    for seed, length in enumerate((LENGTHS[0], *LENGTHS)):
        random = np.random.default_rng(seed)
        rows = {}
        for tensor in signature.fed:
            neutral = _neutral(signature, tensor, length)
            elements = neutral[0] if tensor.varies else neutral
            if seed and elements.dtype.kind == "f":
                elements = random.random(elements.shape).astype(elements.dtype)
            elif seed > 1 and elements.dtype.kind in "iu":
                elements = np.ones_like(elements)
            rows[tensor.tensor] = ragged([elements], 1) if tensor.varies else elements
        events.append((f"generated event {seed + 1}", rows))
    return events


def _neutral(signature: Signature, tensor: TensorInput, length: int) -> NDArray[Any]:
    """Return the row of zeros of a tensor, of at most this length if its length varies."""
    row = neutral_rows(signature)[tensor.tensor]
    if not tensor.varies:
        return row
    at = (tensor.shape or ()).index(VARIES)
    return ragged([np.take(row[0], np.arange(min(length, row[0].shape[at])), axis=at)], 1)


def _varied(signature: Signature, rows: Tensors, factor: float) -> Tensors:
    """Return an event with changed numbers: floats times a factor, integers halved (away from zero) for a factor below 1."""
    raw = {tensor.tensor for tensor in signature.fed if any(field.raw for field in tensor.fields)}

    def varied(values: NDArray[Any]) -> NDArray[Any]:
        if values.dtype.kind == "f":
            return (values * factor).astype(values.dtype)
        if values.dtype.kind in "iu" and factor < 1:
            half: NDArray[Any] = np.where(values < 0, values // 2, values - values // 2)
            return half
        return values

    return {
        name: row if name in raw else ragged([varied(row[0])], 1) if row.ndim == 1 else varied(row)
        for name, row in rows.items()
    }


def _resized(signature: Signature, rows: Tensors, *, longest: bool = False) -> Tensors | None:
    """Return an event of other lengths with the same elements.

    Args:
        signature: The model's signature.
        rows: The event.
        longest: Use the largest lengths for all tensors. Otherwise only padded tensors get another length, a longer one if the
            signature allows it.

    Returns:
        The event; None if no length changes, or if a length is that of bytes: a file cannot be resized.
    """
    resized = dict(rows)
    varying = [tensor for tensor in signature.fed if tensor.varies]
    if any(tensor.fields[0].raw for tensor in varying):
        return None
    for tensor in varying:
        row = rows[tensor.tensor][0]
        at = (tensor.shape or ()).index(VARIES)
        most = _most(signature, tensor.axis)
        length = row.shape[at]
        if length == 0 or (tensor.pad is None and not longest):
            continue
        other = min(most, max(LENGTHS[1], length + length // 2)) if length < most else (length + 1) // 2
        resized[tensor.tensor] = ragged([np.take(row, np.arange(most if longest else other) % length, axis=at)], 1)
    return resized if any(resized[name] is not rows[name] for name in rows) else None


def _most(signature: Signature, axis: str) -> int:
    """Return the largest length of an axis."""
    return min(tensor.fields[0].max_length for tensor in signature.fed if tensor.varies and tensor.axis == axis)


def _grouped(events: Sequence[_ProbedEvent], key: Callable[[_ProbedEvent], Any]) -> list[list[_ProbedEvent]]:
    groups: dict[Any, list[_ProbedEvent]] = {}
    for event in events:
        groups.setdefault(key(event), []).append(event)
    return list(groups.values())


def _unpadded_axes(signature: Signature) -> list[int]:
    """Return the indices of the axes on which events must have the same length to share a run."""
    axes = list(dict.fromkeys((tensor.axis, tensor.pad is None) for tensor in signature.fed if tensor.varies))
    return [at for at, (_, unpadded) in enumerate(axes) if unpadded]


def _row(rows: Tensors, at: int) -> Tensors:
    return {name: tensor[at : at + 1] for name, tensor in rows.items()}


def _joined(rows: Sequence[Tensors]) -> Tensors:
    return {name: np.concatenate([tensors[name] for tensors in rows]) for name in rows[0]}


def _stacked(signature: Signature, rows: Tensors) -> Tensors:
    """Return the rows with each ragged column as one array, to run them at their length without padding."""
    varying = {tensor.tensor for tensor in signature.fed if tensor.varies}
    return {name: np.stack(list(row)) if name in varying else row for name, row in rows.items()}


def _company_hint(signature: Signature) -> str:
    tensor = signature.fed[0]
    example = json.dumps({"tensor": tensor.tensor, "shape": [1, *tensor.row], "batch": False})
    return (
        f'feed it one event at a time ("batch": false for each tensor, such as {example} with its dtype and fields), '
        "export it with the batch as its first axis, or, for a model with dynamic quantisation or float16 inside, accept the "
        'difference: "batch_tolerance"'
    )


def _padding_hint(signature: Signature) -> str:
    mask = next((tensor for tensor in signature.inputs if tensor.mask_of), None)
    marks = f', "marks" of mask {mask.tensor!r} (now "{mask.marks}")' if mask else ""
    return (
        f'correct the "pad"{marks}; or leave "pad" out, so that only events of one length share a run; or feed one event at a '
        'time ("batch": false)'
    )
