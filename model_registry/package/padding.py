"""Divides batches of events of varying length into runs of the model, and adds padding, masks and lengths.

A *run* is one call of the model. For a tensor of varying length, a batch is an object array (B,) with one array per event. Each
event is padded to one of a few lengths (bucket lengths). A short event is therefore not padded to the length of a long event,
and the model gets only a few different shapes. A *step* is one position on the axis whose length varies, for instance a token.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.package.dtypes import array_dtype
from model_registry.package.shapes import VARIES, format_shape, step_size, with_length
from model_registry.package.signature import PADDING, Signature, TensorInput

Tensors = dict[str, NDArray[Any]]

SMALLEST_BUCKET = 8  # the smallest bucket length
STEPS_PER_RUN = (
    16  # the fixed cost of a run, in steps that take as long: 7 to 12 steps were measured for text encoders on a CPU
)
MAX_STEPS = 1 << 14  # most steps of a run, events times padded length: 32 texts of 512 tokens
MAX_ELEMENTS = 1 << 22  # most elements of all tensors of a run


def bucket(length: int, longest: int) -> int:
    """Return the bucket length to which a length is padded: 8, 12, 16, 24, 32, 48, 64, 96, ..., at most `longest`.

    The bucket lengths are the powers of two, and one and a half times these powers. For lengths from 8 on, at most a third of a
    padded row is padding, and a seventh on average if the lengths are evenly distributed.
    """
    power = max(SMALLEST_BUCKET, 1 << (length - 1).bit_length())
    between = power * 3 // 4
    return min(between if SMALLEST_BUCKET <= length <= between else power, longest)


def merge_buckets(counts: Mapping[int, int], run: int = STEPS_PER_RUN) -> dict[int, int]:
    """Merge buckets that have few rows into longer buckets, so that the model is called less often.

    Args:
        counts: The number of rows by bucket length.
        run: The fixed cost of a run in steps. Buckets are merged only if the merge adds fewer steps of padding than this.

    Returns:
        For each bucket length, the length to which its rows are padded.
    """
    targets: dict[int, int] = {}
    pending: list[int] = []
    ascending = sorted(counts)
    for length, following in zip_longest(ascending, ascending[1:]):
        pending.append(length)
        rows = sum(counts[bucket_length] for bucket_length in pending)
        if following is None or rows * (following - length) >= run:
            targets |= dict.fromkeys(pending, length)
            pending = []
    return targets


@dataclass(frozen=True, slots=True)
class PaddedRun:
    """The events of a batch that one call of the model scores.

    Attributes:
        rows: The positions of the events in the batch, ascending.
        steps: The number of events times their padded length.
    """

    rows: NDArray[np.intp]
    steps: int


class LengthPlan:
    """Divides batches into runs (calls of the model) for one signature, and pads the tensors of a run.

    Handles the tensors of varying length, and the masks and lengths that are derived from them. For a model that takes one
    event at a time, each event is a run.
    """

    def __init__(self, signature: Signature) -> None:
        self._alone = signature.alone
        self._varying = {tensor.tensor: tensor for tensor in signature.fed if tensor.varies}
        self._derived = [tensor for tensor in signature.inputs if tensor.mask_of or tensor.length_of]
        self._axes: dict[str, list[TensorInput]] = {}
        for tensor in self._varying.values():
            self._axes.setdefault(tensor.axis, []).append(tensor)
        self._fixed = sum(
            tensor.width
            for tensor in signature.inputs
            if tensor.batch and not tensor.varies and (tensor.fields or tensor.value is not None)
        )

    def lengths(self, tensors: Tensors) -> NDArray[np.int64]:
        """Return the length of each event on each axis, as (B, axes), measured at the first tensor of the axis."""
        columns = [self._tensor_lengths(tensors, first) for first, *_ in self._axes.values()]
        return np.stack(columns, axis=1)

    def mismatches(self, tensors: Tensors) -> dict[int, str]:
        """Return an error message for each event whose tensors have different lengths on one axis, by the event's position."""
        errors: dict[int, str] = {}
        for first, *others in self._axes.values():
            expected = self._tensor_lengths(tensors, first)
            for other in others:
                lengths = self._tensor_lengths(tensors, other)
                names = f"fields {first.fields[0].name!r} and {other.fields[0].name!r}"
                for row in np.flatnonzero(expected != lengths).tolist():
                    error = f"{names} have the lengths {expected[row]} and {lengths[row]}; one length for both was expected"
                    errors.setdefault(row, error)
        return errors

    def plan(self, tensors: Tensors, most_steps: int = MAX_STEPS) -> list[PaddedRun]:
        """Divide a batch into runs; each event is in exactly one run.

        The events of a run are padded to one bucket length, or have equal lengths if the signature states no padding. A run has
        at most `most_steps` steps, unless a single event has more.
        """
        if self._alone:
            return [PaddedRun(np.array([row], np.intp), 1) for row in range(len(next(iter(tensors.values()))))]
        lengths = self.lengths(tensors)
        keys = [self._key(row) for row in map(tuple, lengths.tolist())]
        if len(self._axes) == 1 and self._padded(*self._axes):
            target = merge_buckets(Counter(key for (key,) in keys))
            keys = [(target[key],) for (key,) in keys]
        rows: dict[tuple[int, ...], list[int]] = {}
        for row, key in enumerate(keys):
            rows.setdefault(key, []).append(row)
        runs: list[PaddedRun] = []
        for key in sorted(rows):
            at = np.array(rows[key], np.intp)
            steps = max(1, *key)
            most = self._most_rows(key, most_steps)
            parts = (at[start : start + most] for start in range(0, len(at), most))
            runs += [PaddedRun(part, len(part) * steps) for part in parts]
        return runs

    def pad(self, tensors: Tensors) -> Tensors:
        """Return the tensors of one run in the form that the model takes: padded, and with masks and lengths.

        A tensor that is already one array (B, *shape) is not padded. Raises ValueError if the lengths of a tensor's rows differ
        and the signature states no padding for it.
        """
        lengths = dict(zip(self._axes, self.lengths(tensors).T, strict=True)) if self._axes else {}
        exact = any(tensors[name].ndim > 1 for name in self._varying)
        longest = {axis: int(column.max(initial=0)) for axis, column in lengths.items()}
        sizes = longest if exact else {axis: self._size(axis, length) for axis, length in longest.items()}
        padded = {name: _padded(tensors[name], tensor, sizes[tensor.axis]) for name, tensor in self._varying.items()}
        for tensor in self._derived:
            axis = self._varying[tensor.mask_of or tensor.length_of or ""].axis
            padded[tensor.tensor] = (
                _mask(tensor, lengths[axis], sizes[axis]) if tensor.mask_of else _lengths(tensor, lengths[axis])
            )
        return tensors | padded

    def _tensor_lengths(self, tensors: Tensors, tensor: TensorInput) -> NDArray[np.int64]:
        at = (tensor.shape or ()).index(VARIES)
        rows = tensors[tensor.tensor]
        return np.fromiter((row.shape[at] for row in rows), np.int64, len(rows))

    def _padded(self, axis: str) -> bool:
        return self._axes[axis][0].pad is not None

    def _size(self, axis: str, length: int) -> int:
        """Return the length to which a length on this axis is padded; `length` itself if the signature states no padding."""
        return bucket(length, self._axes[axis][0].fields[0].max_length) if self._padded(axis) else length

    def _key(self, lengths: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._size(axis, length) for axis, length in zip(self._axes, lengths, strict=True))

    def most_rows(self, lengths: Sequence[int]) -> int:
        """Return the largest number of events in one run, for events with these lengths (one length for each axis)."""
        sizes = [self._size(axis, length) for axis, length in zip(self._axes, lengths, strict=True)]
        return self._most_rows(sizes, MAX_STEPS)

    def _most_rows(self, sizes: Sequence[int], most_steps: int) -> int:
        """Return how many events with the padded lengths `sizes` fit the limits of a run (steps and elements), at least one."""
        elements = self._fixed
        for tensors, size in zip(self._axes.values(), sizes, strict=True):
            elements += sum(step_size(tensor.shape or ()) * size for tensor in tensors)
        return max(1, min(most_steps // max(1, *sizes), MAX_ELEMENTS // max(1, elements)))


def run_all(
    runs: Sequence[PaddedRun], tensors: Tensors, run: Callable[[Tensors, int], Tensors], *, alone: bool = False
) -> Tensors:
    """Call the model for each run of a batch, and join the outputs in the order of the batch.

    Args:
        runs: The runs of the batch, from `LengthPlan.plan`.
        tensors: The rows of the batch by tensor name.
        run: Calls the model with the tensors and the number of steps of one run, and returns its outputs.
        alone: Whether each run is one event, so that the answers to different events may have different shapes.

    Returns:
        The outputs (B, ...) by tensor name. With `alone`, an output whose shapes differ between events is an object array (B,)
        of arrays.

    Raises:
        ValueError: An output does not have one row for each event, or, without `alone`, its shapes differ between runs.
    """
    if len(runs) == 1:
        return run(tensors, runs[0].steps)
    if alone:
        return _one_by_one(runs, tensors, run)
    joined: Tensors = {}
    for padded_run in runs:
        rows = padded_run.rows
        for name, part in run({name: tensor[rows] for name, tensor in tensors.items()}, padded_run.steps).items():
            if np.shape(part)[:1] != (len(rows),):
                raise ValueError(f"output {name!r} has shape {np.shape(part)}, not one row for each of {len(rows)} events")
            if name not in joined:
                joined[name] = np.empty((sum(len(other.rows) for other in runs), *part.shape[1:]), part.dtype)
            if (row_shape := joined[name].shape[1:]) != part.shape[1:]:
                shapes = f"{format_shape((None, *row_shape))} and {format_shape((None, *part.shape[1:]))}"
                raise ValueError(f"output {name!r} has the shapes {shapes} for two events; a score has one shape")
            joined[name][rows] = part
    return joined


def _one_by_one(runs: Sequence[PaddedRun], tensors: Tensors, run: Callable[[Tensors, int], Tensors]) -> Tensors:
    """Call the model for each event, and join the outputs in the order of the batch."""
    parts: dict[str, list[NDArray[Any]]] = {}
    for padded_run in runs:
        for name, part in run({name: tensor[padded_run.rows] for name, tensor in tensors.items()}, padded_run.steps).items():
            if np.shape(part)[:1] != (1,):
                raise ValueError(
                    f"output {name!r} has shape {np.shape(part)} for a batch of one event; its first dimension must be 1"
                )
            parts.setdefault(name, []).append(part)
    return {name: _joined(rows) for name, rows in parts.items()}


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Join B arrays (1, ...) into one array (B, ...); if their shapes differ, into an object array (B,) of arrays."""
    if len({part.shape for part in parts}) == 1:
        return np.concatenate(parts)
    rows = np.empty(len(parts), object)
    for at, part in enumerate(parts):
        rows[at] = part.reshape(part.shape[1:])
    return rows


def is_ragged(rows: NDArray[Any]) -> bool:
    """Return whether a batch is an object array (B,) whose elements are the arrays of the events."""
    return rows.dtype == object and rows.ndim == 1 and len(rows) > 0 and isinstance(rows[0], np.ndarray)


def add_batch_dimension(signature: Signature, outputs: Tensors) -> Tensors:
    """Add a first dimension of size 1 to the outputs of a model for one event, so that the shapes are those of a batch of one.

    An output of shape (1, ...) already has a batch and is returned unchanged, unless the signature states another number of
    dimensions for it.
    """
    stated = {output.tensor: output for output in signature.outputs}
    return {name: _as_batch(np.asarray(output), signature.rank(stated[name])) for name, output in outputs.items()}


def _as_batch(output: NDArray[Any], rank: int | None) -> NDArray[Any]:
    is_batch = output.shape[:1] == (1,) and rank in (None, output.ndim - 1)
    return output if is_batch else output[np.newaxis]


def _padded(rows: NDArray[Any], tensor: TensorInput, size: int) -> NDArray[Any]:
    """Pad each row to the length `size`, and return the rows as one array (B, *shape)."""
    if tensor.pad is None:
        return np.stack(list(rows))
    full = np.full((len(rows), *with_length(tensor.shape or (), size)), tensor.pad, array_dtype(tensor.dtype))
    for target, row in zip(full, rows, strict=True):
        target[tuple(map(slice, row.shape))] = row
    return full


def _mask(tensor: TensorInput, lengths: NDArray[np.int64], size: int) -> NDArray[Any]:
    """Return the mask (B, *shape) of rows with these lengths, padded to the length `size`.

    The mask is 1 at values and 0 at padding; the reverse if `tensor.marks` is `padding`.
    """
    shape = tensor.shape or ()
    marked = (np.arange(size) < lengths[:, None]) ^ (tensor.marks == PADDING)
    mask = marked.astype(tensor.dtype)
    alone = mask.reshape(len(lengths), *(size if length == VARIES else 1 for length in shape))
    return np.ascontiguousarray(np.broadcast_to(alone, (len(lengths), *with_length(shape, size))))


def _lengths(tensor: TensorInput, lengths: NDArray[np.int64]) -> NDArray[Any]:
    """Return an array (B, *shape) in which every element of a row is the length of that row."""
    shape = tensor.shape or ()
    alone = lengths.astype(tensor.dtype).reshape(len(lengths), *(1 for _ in shape))
    return np.ascontiguousarray(np.broadcast_to(alone, (len(lengths), *shape)))
