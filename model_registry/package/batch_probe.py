"""Probes a model: checks whether the score of an event depends on the other events of its batch, their order, or padding.

The probe also checks that the model answers events of all lengths that the signature allows. The probe uses at most MAX_ROWS
golden examples and variations of one of them; without golden examples it uses generated events. The caller passes the function
that runs the model, so that `push`, `check` and the loading of a version can use the same probe. The probe only compares
answers of the model with each other. Other modules check with the golden examples whether a score is correct.
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

SECONDS = 10.0  # time limit: from then on each remaining comparison runs only one batch of MIN_EVENTS events
MIN_EVENTS = 2
FIRST_GOLDEN = 3  # golden examples that are run first; the others are run only in the first half of SECONDS
FACTORS = (0.5, 1.25)  # variations of a golden example multiply its numbers by these factors
MAX_ROWS = 64  # largest batch of the probe and largest number of golden examples, in events
LENGTHS = (12, 20)  # lengths of generated events
DIFFERENCE = 1e-4  # allowed difference between two answers: absolute for numbers up to 1, relative for larger numbers
DIFFERENCE_HALF = 5e-3  # the same for float16 outputs, and on devices that multiply with as few bits (TF32)

Run = Callable[[Tensors], Mapping[str, NDArray[Any]]]
"""A function that runs the model once. It takes (B, n) rows by tensor name and returns the outputs by tensor name. See
`scorer.backends.base.Model.run`."""


@dataclass(frozen=True, slots=True)
class _ProbedEvent:
    """An event that the model answered in a run without other events.

    Attributes:
        name: A description of the event for messages.
        rows: The event's row of each tensor, as a batch of one.
        lengths: The event's length on each axis of varying length; empty if there is no such axis.
        answer: The model's outputs for the event alone, by the output's name.
        exact: Whether the model ran the event at its exact length, without padding.
    """

    name: str
    rows: Tensors
    lengths: tuple[int, ...]
    answer: Mapping[str | None, NDArray[Any]]
    exact: bool


@dataclass(frozen=True, slots=True)
class _ScoreDifference:
    """The difference between the model's answers to one event alone and in a batch.

    Attributes:
        excess: The ratio of `size` to `allowed`.
        size: The largest difference between two corresponding numbers of the answers.
        allowed: The allowed difference.
        text: A description for messages, with both answers.
    """

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
    max_rows: int = MAX_ROWS,
    rounds_coarsely: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Check that the model's answer to an event is the same in a run without other events and in a batch with other events.

    Events to which the model gives no answer in a run without other events are not compared. If the model answers at least one
    event, it must also answer an event of the largest lengths that the signature allows.

    Args:
        signature: The model's signature. For a model that takes one event at a time, only the answers to two runs of the same
            event are compared.
        golden: The decoded rows of the golden examples, (B, n) by tensor name; None if there are none.
        run: The function that runs the model once.
        failed: The exception that `run` raises if the model does not answer.
        max_rows: The largest number of events that a scorer runs in one batch.
        rounds_coarsely: Whether the device may round as coarsely as float16; a larger difference is then allowed.
        clock: A monotonic clock in seconds.

    Raises:
        Refused: The answers to an event differ by more than the tolerance. Or the model answers events one by one, but fails
            for the same events in a batch, or for events of other lengths.
    """
    probe = _Probe(signature, run, failed, max_rows, DIFFERENCE_HALF if rounds_coarsely else DIFFERENCE, clock)
    rows = _golden(signature, golden) if golden else _generated(signature)
    events = probe.run_alone(rows[:1] if signature.alone else rows)
    if golden and not signature.alone:
        events += probe.run_alone(_further_golden(signature, golden), further=True)
    if events:
        probe.check_repeated(events[0])
    if longest := _resized(signature, rows[0][1], longest=True):
        probe.check_lengths(longest, [] if golden else [row for _, row in rows], events)
    if signature.alone:
        return
    padded = any(tensor.pad is not None for tensor in signature.fed if tensor.varies)
    for group in _grouped(events, lambda event: (event.lengths, event.exact)):
        if not padded or (group[0].exact and len(group) > 1):
            probe.check_batches(group, "beside other events", _batch_dependence_hint(signature), exact=padded)
    if padded:
        fixed = _unpadded_axes(signature)
        for group in _grouped(events, lambda event: tuple(event.lengths[at] for at in fixed)):
            probe.check_batches(group, "padded to the length of others", _padding_hint(signature))


class _Probe:
    """Compares one model's answers to the same events in different runs.

    After SECONDS, each comparison runs at most one batch of MIN_EVENTS events.
    """

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
        self._max_rows = most
        self._rounding = rounding
        self._lengths = LengthPlan(signature) if signature.varies else None
        self._end = clock() + SECONDS

    def run_alone(self, rows: Sequence[tuple[str, Tensors]], *, further: bool = False) -> list[_ProbedEvent]:
        """Run each event by itself, if possible without padding, and return the events that the model answers.

        Args:
            rows: The description and the rows of each event.
            further: Whether the events are additional ones. Additional events are run only during the first half of the time
                limit, so that the other half remains for the comparisons.
        """
        events: list[_ProbedEvent] = []
        for name, tensors in rows:
            if further and self._clock() > self._end - SECONDS / 2:
                break
            if len(events) >= MIN_EVENTS and self._is_time_over():
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
        """Run an event once more; raise Refused if the model's answer differs from its first answer."""
        rows = _stacked(self._signature, event.rows) if event.exact else event.rows
        repeated = self._answers(rows)
        if worst := max(self._differences([event], repeated), key=lambda difference: difference.excess, default=None):
            hint = "export the model for inference, without dropout or random numbers"
            fault = f"the model gives two different answers to the same event: {worst.text} when it is run again"
            raise Refused(fault, hint)

    def check_lengths(self, longest: Tensors, generated: Sequence[Tensors], events: Sequence[_ProbedEvent]) -> None:
        """Check that the model answers events of the largest lengths and of shorter lengths.

        Args:
            longest: An event of the largest lengths.
            generated: The generated events; empty if there are golden examples.
            events: The events that the model answers.

        Raises:
            Refused: The model answers some of `events` but not `longest`. Or it answers `longest`, but none of the generated
                events that are shorter.
        """
        if events and self._is_time_over():
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
                f"give an example of a shorter event in golden.jsonl, {axis}",
            )

    def check_batches(self, group: Sequence[_ProbedEvent], where: str, hint: str, *, exact: bool = False) -> None:
        """Run batches of these events, and compare the answer to each event with its answer in a run without other events.

        There are at least two batches, which differ in the order of the events. Unless the time limit ends the check early,
        each event is in at least one batch.

        Args:
            group: The events.
            where: A description of the batches for the message.
            hint: The remedy.
            exact: Whether the batches are run without padding.

        Raises:
            Refused: An answer differs by more than is allowed, or the model does not answer a batch.
        """
        differences: list[_ScoreDifference] = []
        rows_at_once = min(self._max_rows, self._most_rows(group))
        starts = range(0, max(len(group) - rows_at_once, 1), rows_at_once)  # the last batch has the last events
        batches = [group[start : start + rows_at_once] for start in starts]
        batches.append([*reversed(group), *group, group[0]][:rows_at_once])
        for at, batch in enumerate(batches):
            if self._is_time_over():
                if at > 0:
                    break
                batch = batch[:MIN_EVENTS]
            rows = _joined([event.rows for event in batch])
            try:
                together = self._answers(_stacked(self._signature, rows) if exact else rows)
            except (self._failed, model_outputs.OutputMismatch) as error:
                raise Refused(
                    f"the model answers one event at a time, but not {len(batch)} events together: {error}", hint
                ) from error
            differences += self._differences(batch, together)
        if worst := max(differences, key=lambda difference: difference.excess, default=None):
            measured = f"the largest difference is {worst.size:.3g}, but at most {worst.allowed:.3g} is allowed"
            raise Refused(f"a score depends on its batch: {worst.text} {where}; {measured}", hint)

    def _differences(
        self, batch: Sequence[_ProbedEvent], batch_answers: Mapping[str | None, NDArray[Any]]
    ) -> Iterator[_ScoreDifference]:
        """Yield each difference between an event's answer in the batch and without other events that exceeds the tolerance."""
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
        """Return how many events a scorer runs in one batch if all of them have the largest lengths in this group."""
        if self._lengths is None:
            return MAX_ROWS
        return self._lengths.most_rows([max(lengths) for lengths in zip(*(event.lengths for event in group), strict=True)])

    def _is_time_over(self) -> bool:
        return self._clock() > self._end


def _difference(alone: Any, together: Any, tolerance: float | None, rounding: float) -> tuple[float, float, float, str] | None:
    """Return the largest difference between two answers to one event; None if the difference is allowed.

    Args:
        alone: The answer to the event alone.
        together: The answer to the event in a batch.
        tolerance: The signature's `batch_tolerance`; None allows only differences by rounding.
        rounding: The allowed difference by rounding.

    Returns:
        The ratio of the difference to the allowed difference, the difference, the allowed difference, and both answers as
        text.
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
    """Return up to FIRST_GOLDEN golden examples, the shortest ones first, and variations of the first example.

    A changed file or an unexpected zero may crash a model. Fields of bytes, such as files, are therefore not varied, and no
    variation changes a nonzero number to zero.
    """
    events = _golden_events(rows, _first_golden(signature, rows))
    name, first = events[0]
    for factor in FACTORS:
        events.append((f"{name} with its numbers times {factor}", _varied(signature, first, factor)))
    if longer := _resized(signature, first):
        events.append((f"{name} at another length", longer))
    return events


def _further_golden(signature: Signature, rows: Tensors) -> list[tuple[str, Tensors]]:
    """Return the golden examples that `_golden` omits, in their order.

    Both functions together return at most MAX_ROWS golden examples.
    """
    first = _first_golden(signature, rows)
    further = [at for at in range(len(next(iter(rows.values())))) if at not in first]
    return _golden_events(rows, further[: MAX_ROWS - len(first)])


def _first_golden(signature: Signature, rows: Tensors) -> list[int]:
    """Return the indices of at most FIRST_GOLDEN golden examples, the shortest first.

    The examples are sorted by length and selected at even distances, so that the shortest and the longest are included.
    """
    count = len(next(iter(rows.values())))
    order = np.arange(count)
    if signature.varies:
        order = np.argsort(LengthPlan(signature).lengths(rows).sum(axis=1), kind="stable")
    indices: list[int] = order[np.unique(np.linspace(0, count - 1, min(count, FIRST_GOLDEN)).astype(int))].tolist()
    return indices


def _golden_events(rows: Tensors, indices: Sequence[int]) -> list[tuple[str, Tensors]]:
    return [(f"golden example {at + 1}", _row(rows, at)) for at in indices]


def _generated(signature: Signature) -> list[tuple[str, Tensors]]:
    """Generate events for a version without golden examples.

    The first event consists of zeros. In the two others, the floats are random numbers from 0 to 1.
    """
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
    """Return a tensor's row of zeros or empty strings.

    A row of varying length has the length `length`, or the largest allowed length if that is smaller.
    """
    row = neutral_rows(signature)[tensor.tensor]
    if not tensor.varies:
        return row
    at = (tensor.shape or ()).index(VARIES)
    return ragged([np.take(row[0], np.arange(min(length, row[0].shape[at])), axis=at)], 1)


def _varied(signature: Signature, rows: Tensors, factor: float) -> Tensors:
    """Return a variation of an event: floats times `factor`, and integers halved (away from zero) if `factor` is below 1."""
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
    """Return a variation of an event with other lengths, made by repeating or cutting its elements.

    Args:
        signature: The model's signature.
        rows: The event.
        longest: Whether all tensors of varying length get the largest length. If false, only tensors that the signature pads
            are resized: to a larger length if the signature allows it, else to a smaller length.

    Returns:
        The variation; None if no length changes, or if bytes feed a tensor of varying length, because a file cannot be resized.
    """
    resized = dict(rows)
    varying = [tensor for tensor in signature.fed if tensor.varies]
    if any(tensor.fields[0].raw for tensor in varying):
        return None
    for tensor in varying:
        row = rows[tensor.tensor][0]
        at = (tensor.shape or ()).index(VARIES)
        most = _max_length(signature, tensor.axis)
        length = row.shape[at]
        if length == 0 or (tensor.pad is None and not longest):
            continue
        other = min(most, max(LENGTHS[1], length + length // 2)) if length < most else (length + 1) // 2
        resized[tensor.tensor] = ragged([np.take(row, np.arange(most if longest else other) % length, axis=at)], 1)
    return resized if any(resized[name] is not rows[name] for name in rows) else None


def _max_length(signature: Signature, axis: str) -> int:
    """Return the largest length that the signature allows on an axis."""
    return min(tensor.fields[0].max_length for tensor in signature.fed if tensor.varies and tensor.axis == axis)


def _grouped(events: Sequence[_ProbedEvent], key: Callable[[_ProbedEvent], Any]) -> list[list[_ProbedEvent]]:
    groups: dict[Any, list[_ProbedEvent]] = {}
    for event in events:
        groups.setdefault(key(event), []).append(event)
    return list(groups.values())


def _unpadded_axes(signature: Signature) -> list[int]:
    """Return the indices of the axes without padding. Events must have equal lengths on these axes to be run together."""
    axes = list(dict.fromkeys((tensor.axis, tensor.pad is None) for tensor in signature.fed if tensor.varies))
    return [at for at, (_, unpadded) in enumerate(axes) if unpadded]


def _row(rows: Tensors, at: int) -> Tensors:
    return {name: tensor[at : at + 1] for name, tensor in rows.items()}


def _joined(rows: Sequence[Tensors]) -> Tensors:
    return {name: np.concatenate([tensors[name] for tensors in rows]) for name in rows[0]}


def _stacked(signature: Signature, rows: Tensors) -> Tensors:
    """Return rows of equal lengths as one array per tensor, so that the model runs them without padding."""
    varying = {tensor.tensor for tensor in signature.fed if tensor.varies}
    return {name: np.stack(list(row)) if name in varying else row for name, row in rows.items()}


def _batch_dependence_hint(signature: Signature) -> str:
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
        f'correct the "pad"{marks}; or remove "pad", so that only events of one length share a run; or feed one event at a '
        'time ("batch": false)'
    )
