"""Events whose lengths vary, put together for the model: which are run together, and padding, masks and lengths for them.

An event's row of such a tensor is an array of its own; a batch has an object array (B,) of them. Events are padded to bucket
lengths, so that a long one does not pad the short ones, and so that the shapes a model sees are few.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
MAX_STEPS = 1 << 14  # of a run, events times their padded length: 32 texts of 512 tokens
MAX_ELEMENTS = 1 << 22  # of a run, of all tensors


def bucket(length: int, longest: int) -> int:
    """The length that one is padded to: 8, 12, 16, 24, 32, 48, 64, 96, ... (powers of two, and half more), `longest` at most.
    From 8 on padding is a third of a row at most, and a seventh on average where lengths spread evenly."""
    power = max(SMALLEST_BUCKET, 1 << (length - 1).bit_length())
    between = power * 3 // 4
    return min(between if SMALLEST_BUCKET <= length <= between else power, longest)


def merge_buckets(counts: Mapping[int, int], run: int = STEPS_PER_RUN) -> dict[int, int]:
    """Bucket lengths to those that they are run at, of so many rows each: the rows of one join the next longer one where the
    padding, in steps, is less than what a run costs (`run`). Each is where it was, or longer."""
    target: dict[int, int] = {}
    waiting: list[int] = []
    ascending = sorted(counts)
    for at, length in enumerate(ascending):
        waiting.append(length)
        following = ascending[at + 1] if at + 1 < len(ascending) else None
        rows = sum(counts[one] for one in waiting)
        if following is None or rows * (following - length) >= run:
            target |= dict.fromkeys(waiting, length)
            waiting = []
    return target


@dataclass(frozen=True, slots=True)
class PaddedRun:
    """Events that are run together: their rows in the batch, ascending, and how many steps they are when they are padded."""

    rows: NDArray[np.intp]
    steps: int


class LengthPlan:
    """The tensors of one signature whose length varies, and those that are made of them; or a model that takes one event at a
    time."""

    def __init__(self, signature: Signature) -> None:
        self._alone = signature.alone
        self._varying = {one.tensor: one for one in signature.fed if one.varies}
        self._made = [one for one in signature.inputs if one.mask_of or one.length_of]
        self._axes: dict[str, list[TensorInput]] = {}
        for one in self._varying.values():
            self._axes.setdefault(one.axis, []).append(one)
        self._fixed = sum(
            one.width for one in signature.inputs if one.batch and not one.varies and (one.fields or one.value is not None)
        )

    def lengths(self, tensors: Tensors) -> NDArray[np.int64]:
        """(B, axes) lengths of a batch, each that of the first tensor with the axis."""
        columns = [self._of(tensors, first) for first, *_ in self._axes.values()]
        return np.stack(columns, axis=1)

    def mismatches(self, tensors: Tensors) -> dict[int, str]:
        """What is wrong with the rows whose tensors of one axis have several lengths."""
        found: dict[int, str] = {}
        for first, *others in self._axes.values():
            wanted = self._of(tensors, first)
            for other in others:
                lengths = self._of(tensors, other)
                names = f"fields {first.fields[0].name!r} and {other.fields[0].name!r}"
                for row in np.flatnonzero(wanted != lengths).tolist():
                    said = f"{names} have the lengths {wanted[row]} and {lengths[row]}; one length for both was expected"
                    found.setdefault(row, said)
        return found

    def plan(self, tensors: Tensors, most_steps: int = MAX_STEPS) -> list[PaddedRun]:
        """The runs of a batch, of `most_steps` at most unless of one event. Together they have all rows. Those of a run are
        padded to one bucket length, or have one length where nothing is padded."""
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
            at, steps, most = np.array(rows[key], np.intp), max(1, *key), self._most_rows(key, most_steps)
            parts = (at[start : start + most] for start in range(0, len(at), most))
            runs += [PaddedRun(part, len(part) * steps) for part in parts]
        return runs

    def pad(self, tensors: Tensors) -> Tensors:
        """The tensors of one run as the model has them: padded, with masks and lengths beside them. Rows that are one
        (B, *shape) array are not padded. Raises ValueError where lengths differ and nothing says what they are padded with."""
        lengths = dict(zip(self._axes, self.lengths(tensors).T, strict=True)) if self._axes else {}
        exact = any(tensors[name].ndim > 1 for name in self._varying)
        longest = {axis: int(found.max(initial=0)) for axis, found in lengths.items()}
        sizes = longest if exact else {axis: self._size(axis, length) for axis, length in longest.items()}
        made = {name: _padded(tensors[name], one, sizes[one.axis]) for name, one in self._varying.items()}
        for one in self._made:
            axis = self._varying[one.mask_of or one.length_of or ""].axis
            made[one.tensor] = _mask(one, lengths[axis], sizes[axis]) if one.mask_of else _lengths(one, lengths[axis])
        return tensors | made

    def _of(self, tensors: Tensors, one: TensorInput) -> NDArray[np.int64]:
        at = (one.shape or ()).index(VARIES)
        rows = tensors[one.tensor]
        return np.fromiter((row.shape[at] for row in rows), np.int64, len(rows))

    def _padded(self, axis: str) -> bool:
        return self._axes[axis][0].pad is not None

    def _size(self, axis: str, length: int) -> int:
        """What a length is padded to."""
        return bucket(length, self._axes[axis][0].fields[0].max_length) if self._padded(axis) else length

    def _key(self, lengths: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._size(axis, length) for axis, length in zip(self._axes, lengths, strict=True))

    def most_rows(self, lengths: Sequence[int]) -> int:
        """How many rows of these lengths, one of each axis, are run at once."""
        sizes = [self._size(axis, length) for axis, length in zip(self._axes, lengths, strict=True)]
        return self._most_rows(sizes, MAX_STEPS)

    def _most_rows(self, sizes: Sequence[int], most_steps: int) -> int:
        """How many rows of these lengths are run at once: the memory that they take has a bound, unless it is one row."""
        elements = self._fixed
        for tensors, size in zip(self._axes.values(), sizes, strict=True):
            elements += sum(step_size(one.shape or ()) * size for one in tensors)
        return max(1, min(most_steps // max(1, *sizes), MAX_ELEMENTS // max(1, elements)))


def run_all(
    runs: Sequence[PaddedRun], tensors: Tensors, run: Callable[[Tensors, int], Tensors], *, alone: bool = False
) -> Tensors:
    """Join the outputs of a batch's runs in the order of its rows.

    Args:
        run: Runs the model for the tensors of one run, which has so many steps.
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
    whole: Tensors = {}
    for one in runs:
        rows = one.rows
        for name, part in run({name: tensor[rows] for name, tensor in tensors.items()}, one.steps).items():
            if np.shape(part)[:1] != (len(rows),):
                raise ValueError(f"output {name!r} has shape {np.shape(part)}, not one row for each of {len(rows)} events")
            if name not in whole:
                whole[name] = np.empty((sum(len(one.rows) for one in runs), *part.shape[1:]), part.dtype)
            if (found := whole[name].shape[1:]) != part.shape[1:]:
                shapes = f"{format_shape((None, *found))} and {format_shape((None, *part.shape[1:]))}"
                raise ValueError(f"output {name!r} has the shapes {shapes} for two events; a score has one shape")
            whole[name][rows] = part
    return whole


def _one_by_one(runs: Sequence[PaddedRun], tensors: Tensors, run: Callable[[Tensors, int], Tensors]) -> Tensors:
    """Join the answers to single events, whose rows ascend."""
    parts: dict[str, list[NDArray[Any]]] = {}
    for one in runs:
        for name, part in run({name: tensor[one.rows] for name, tensor in tensors.items()}, one.steps).items():
            if np.shape(part)[:1] != (1,):
                raise ValueError(f"output {name!r} has shape {np.shape(part)}, not one row for each of 1 events")
            parts.setdefault(name, []).append(part)
    return {name: _joined(each) for name, each in parts.items()}


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """(B, ...) of (1, ...) parts, or (B,) arrays where their shapes differ."""
    if len({part.shape for part in parts}) == 1:
        return np.concatenate(parts)
    rows = np.empty(len(parts), object)
    for at, part in enumerate(parts):
        rows[at] = part.reshape(part.shape[1:])
    return rows


def is_ragged(rows: NDArray[Any]) -> bool:
    """Whether the rows of a batch are arrays of their own, (B,) of them."""
    return rows.dtype == object and rows.ndim == 1 and len(rows) > 0 and isinstance(rows[0], np.ndarray)


def add_batch_dimension(signature: Signature, outputs: Tensors) -> Tensors:
    """The outputs for one event as those of a batch. What has a first dimension of one stays, unless the signature reads
    another number of dimensions."""
    read = {one.tensor: one for one in signature.outputs}
    return {name: _as_row(np.asarray(found), signature.rank(read[name])) for name, found in outputs.items()}


def _as_row(found: NDArray[Any], rank: int | None) -> NDArray[Any]:
    stays = found.shape[:1] == (1,) and rank in (None, found.ndim - 1)
    return found if stays else found[np.newaxis]


def _padded(rows: NDArray[Any], one: TensorInput, size: int) -> NDArray[Any]:
    """(B, *shape) of rows of this length at most."""
    if one.pad is None:
        return np.stack(list(rows))
    full = np.full((len(rows), *with_length(one.shape or (), size)), one.pad, array_dtype(one.dtype))
    for target, row in zip(full, rows, strict=True):
        target[tuple(map(slice, row.shape))] = row
    return full


def _mask(one: TensorInput, lengths: NDArray[np.int64], size: int) -> NDArray[Any]:
    """(B, *shape): 1 where a row has values, 0 where it is padded, or the opposite for a mask that marks padding."""
    shape = one.shape or ()
    marked = (np.arange(size) < lengths[:, None]) ^ (one.marks == PADDING)
    mask = marked.astype(one.dtype)
    alone = mask.reshape(len(lengths), *(size if length == VARIES else 1 for length in shape))
    return np.ascontiguousarray(np.broadcast_to(alone, (len(lengths), *with_length(shape, size))))


def _lengths(one: TensorInput, lengths: NDArray[np.int64]) -> NDArray[Any]:
    """(B, *shape), filled with each row's length."""
    shape = one.shape or ()
    alone = lengths.astype(one.dtype).reshape(len(lengths), *(1 for _ in shape))
    return np.ascontiguousarray(np.broadcast_to(alone, (len(lengths), *shape)))
