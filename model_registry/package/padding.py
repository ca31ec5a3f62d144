"""Batches of events of varying length: which events are run together, and their padding, masks and lengths.

An event's row of a tensor of varying length is an array of its own; a batch has an object array (B,) of them. Events are padded
to bucket lengths, so that a long event does not pad short ones, and so that the model gets few different shapes.
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

SMALLEST_BUCKET = 8  # the smallest bucket
STEPS_PER_RUN = (
    16  # steps that cost what a run costs whatever its size: 7 to 12 where encoders of texts were measured, on a CPU
)
MAX_STEPS = 1 << 14  # of a run, events times padded length: 32 texts of 512 tokens
MAX_ELEMENTS = 1 << 22  # of a run, of all tensors


def bucket(length: int, longest: int) -> int:
    """Return the length that a length is padded to: 8, 12, 16, 24, 32, 48, 64, 96, ..., at most `longest`.

    These are powers of two, and one and a half times them. From 8 on, padding is at most a third of a row, and a seventh on
    average if lengths are spread evenly.
    """
    power = max(SMALLEST_BUCKET, 1 << (length - 1).bit_length())
    between = power * 3 // 4
    return min(between if SMALLEST_BUCKET <= length <= between else power, longest)


def merge_buckets(counts: Mapping[int, int], run: int = STEPS_PER_RUN) -> dict[int, int]:
    """Merge buckets of few rows into the next longer one, to save runs.

    Args:
        counts: The number of rows of each bucket length.
        run: The fixed cost of a run in steps; a merge must add fewer steps of padding.

    Returns:
        The length at which each bucket is run.
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
    """Events that are run together: their rows in the batch, ascending, and their number of steps after padding."""

    rows: NDArray[np.intp]
    steps: int


class LengthPlan:
    """The tensors of varying length of one signature and those derived from them: plans the runs of a batch and pads them.

    It also plans for a model that takes one event at a time.
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
        """Return the (B, axes) lengths of a batch, measured at the first tensor of each axis."""
        columns = [self._tensor_lengths(tensors, first) for first, *_ in self._axes.values()]
        return np.stack(columns, axis=1)

    def mismatches(self, tensors: Tensors) -> dict[int, str]:
        """Return an error for each row whose tensors of one axis have different lengths."""
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
        """Divide a batch into runs; together they have all rows.

        The rows of a run are padded to one bucket length, or have the same length if the signature states no padding. A run has
        at most `most_steps` steps unless it is one event.
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
        """Return the tensors of one run as the model takes them: padded, with masks and lengths.

        Rows in one (B, *shape) array are not padded. Raises ValueError if lengths differ and the signature states no padding.
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
        """Return the length that a length is padded to."""
        return bucket(length, self._axes[axis][0].fields[0].max_length) if self._padded(axis) else length

    def _key(self, lengths: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._size(axis, length) for axis, length in zip(self._axes, lengths, strict=True))

    def most_rows(self, lengths: Sequence[int]) -> int:
        """Return how many rows of these lengths, one for each axis, are run at once."""
        sizes = [self._size(axis, length) for axis, length in zip(self._axes, lengths, strict=True)]
        return self._most_rows(sizes, MAX_STEPS)

    def _most_rows(self, sizes: Sequence[int], most_steps: int) -> int:
        """Return how many rows of these lengths fit the memory limit of a run, at least one."""
        elements = self._fixed
        for tensors, size in zip(self._axes.values(), sizes, strict=True):
            elements += sum(step_size(tensor.shape or ()) * size for tensor in tensors)
        return max(1, min(most_steps // max(1, *sizes), MAX_ELEMENTS // max(1, elements)))


def run_all(
    runs: Sequence[PaddedRun], tensors: Tensors, run: Callable[[Tensors, int], Tensors], *, alone: bool = False
) -> Tensors:
    """Run a batch and join the outputs of its runs in the order of its rows.

    Args:
        runs: The plan of the batch.
        tensors: The batch.
        run: Runs the model; called with the tensors and the number of steps of one run.
        alone: Each run is one event, whose answer has a shape of its own.

    Returns:
        (B, ...) by tensor name; with `alone`, an object array (B,) of arrays where the events' shapes differ.

    Raises:
        ValueError: An output has no row for each event, or has another shape in another run without `alone`.
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
    """Run events one at a time and join their answers."""
    parts: dict[str, list[NDArray[Any]]] = {}
    for padded_run in runs:
        for name, part in run({name: tensor[padded_run.rows] for name, tensor in tensors.items()}, padded_run.steps).items():
            if np.shape(part)[:1] != (1,):
                raise ValueError(f"output {name!r} has shape {np.shape(part)}, not one row for each of 1 events")
            parts.setdefault(name, []).append(part)
    return {name: _joined(rows) for name, rows in parts.items()}


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Join (1, ...) parts into (B, ...), or into (B,) arrays if their shapes differ."""
    if len({part.shape for part in parts}) == 1:
        return np.concatenate(parts)
    rows = np.empty(len(parts), object)
    for at, part in enumerate(parts):
        rows[at] = part.reshape(part.shape[1:])
    return rows


def is_ragged(rows: NDArray[Any]) -> bool:
    """Return whether a batch is an object array (B,) of one array for each event."""
    return rows.dtype == object and rows.ndim == 1 and len(rows) > 0 and isinstance(rows[0], np.ndarray)


def add_batch_dimension(signature: Signature, outputs: Tensors) -> Tensors:
    """Return the outputs for one event as those of a batch of one.

    An output whose first dimension is 1 stays as it is, unless the signature reads another number of dimensions.
    """
    stated = {output.tensor: output for output in signature.outputs}
    return {name: _as_batch(np.asarray(output), signature.rank(stated[name])) for name, output in outputs.items()}


def _as_batch(output: NDArray[Any], rank: int | None) -> NDArray[Any]:
    is_batch = output.shape[:1] == (1,) and rank in (None, output.ndim - 1)
    return output if is_batch else output[np.newaxis]


def _padded(rows: NDArray[Any], tensor: TensorInput, size: int) -> NDArray[Any]:
    """Pad rows to this length, as (B, *shape)."""
    if tensor.pad is None:
        return np.stack(list(rows))
    full = np.full((len(rows), *with_length(tensor.shape or (), size)), tensor.pad, array_dtype(tensor.dtype))
    for target, row in zip(full, rows, strict=True):
        target[tuple(map(slice, row.shape))] = row
    return full


def _mask(tensor: TensorInput, lengths: NDArray[np.int64], size: int) -> NDArray[Any]:
    """Return a (B, *shape) mask: 1 at values and 0 at padding, or the opposite for a mask that marks padding."""
    shape = tensor.shape or ()
    marked = (np.arange(size) < lengths[:, None]) ^ (tensor.marks == PADDING)
    mask = marked.astype(tensor.dtype)
    alone = mask.reshape(len(lengths), *(size if length == VARIES else 1 for length in shape))
    return np.ascontiguousarray(np.broadcast_to(alone, (len(lengths), *with_length(shape, size))))


def _lengths(tensor: TensorInput, lengths: NDArray[np.int64]) -> NDArray[Any]:
    """Return (B, *shape), filled with each row's length."""
    shape = tensor.shape or ()
    alone = lengths.astype(tensor.dtype).reshape(len(lengths), *(1 for _ in shape))
    return np.ascontiguousarray(np.broadcast_to(alone, (len(lengths), *shape)))
