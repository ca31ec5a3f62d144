"""Runs of a model in buckets (fixed batch sizes). Each bucket has input and output buffers that are allocated once.

The code is the same for every device. `BufferDevice` describes the features that only GPUs have: pinned host memory and CUDA
graphs.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from model_registry.onnx_tools.declared_tensors import ModelTensor
from scorer.backends.onnx.batch_buckets import pieces

Tensors = dict[str, NDArray[Any]]
_CAPTURE = threading.Lock()
"""Lock that is held while a CUDA graph is captured, because a CUDA call by another thread would corrupt the capture."""


@dataclass(frozen=True, slots=True)
class BufferDevice:
    """The device on which input and output buffers are allocated, and its features.

    Attributes:
        name: ONNX Runtime's name of the device, `cpu` or `cuda`.
        graphs: whether CUDA graphs are used: the first run of each batch size is captured, and later runs replay it.
        pin: a function that pins the memory of a host buffer, so that it is not paged out.
        unpin: a function that unpins the memory.
    """

    name: str = "cpu"
    graphs: bool = False
    pin: Callable[[NDArray[Any]], object] = lambda _: None
    unpin: Callable[[NDArray[Any]], object] = lambda _: None


def has_fixed_shapes(tensors: Iterable[ModelTensor]) -> bool:
    """Return whether buffers can be bound to these tensors: all are numeric, and only their first dimension varies."""
    return all(
        one.dtype != "string" and len(one.shape) >= 1 and all(isinstance(size, int) and size > 0 for size in one.shape[1:])
        for one in tensors
    )


@dataclass(frozen=True, slots=True)
class BindableSession:
    """A session of ONNX Runtime whose inputs and outputs can be bound to buffers.

    Attributes:
        inputs: the inputs with a batch dimension; all other dimensions are fixed.
        outputs: the outputs that the scores are computed from; all their dimensions except the first are fixed.
        constants: the values of the inputs that are the same for every batch, by name.
    """

    session: Any
    inputs: Sequence[ModelTensor]
    outputs: Sequence[ModelTensor]
    constants: Tensors = field(default_factory=dict)


class BucketBinding:
    """The buckets of one model: batch sizes with their own input and output buffers. Only one thread at a time may use them.

    A batch of any size is divided into buckets. `sizes` are the sizes of the initial buckets, ascending; `add` adds larger
    buckets.
    """

    def __init__(self, model: BindableSession, device: BufferDevice, sizes: Sequence[int] = ()) -> None:
        self._model = model
        self._device = device
        self._exclusive: AbstractContextManager[object] = _CAPTURE if device.graphs else nullcontext()
        device_constants = {
            name: ort.OrtValue.ortvalue_from_numpy(one, device.name, 0) for name, one in model.constants.items()
        }
        self._constants = device_constants, model.constants  # on the CPU the values use the memory of the arrays
        self._buckets: dict[int, _Bucket] = {}
        for size in sizes:
            self.add(size)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The bucket sizes, ascending."""
        return tuple(self._buckets)

    def add(self, size: int) -> None:
        """Add a bucket. It must be larger than all existing buckets. Raises ONNX Runtime's error if memory is exhausted."""
        if size not in self._buckets:
            self._buckets[size] = _Bucket(self._model, self._device, size, self._constants[0])

    def keep(self, sizes: Collection[int]) -> None:
        """Free every bucket whose size is not in `sizes`."""
        for size in set(self._buckets) - set(sizes):
            self._buckets.pop(size).free()

    def run(self, tensors: Mapping[str, NDArray[Any]], watched: Callable[[Any, Callable[[], None]], None]) -> Tensors:
        """Compute (B, ...) outputs from (B, ...) inputs, in one or more buckets.

        For each bucket, `watched(options, run)` is called. It must call `run()`, and may end the run early through `options`,
        the run options of ONNX Runtime.
        """
        rows = len(next(iter(tensors.values())))
        parts: list[Tensors] = []
        for start, stop, size in pieces(rows, self.sizes):
            bucket = self._buckets[size]
            with self._exclusive:
                bucket.fill(tensors, start, stop)
                watched(bucket.options, bucket.run)
                parts.append(bucket.read(stop - start))
        return parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def free(self) -> None:
        """Free all buckets."""
        self.keep(())


class _Bucket:
    """The input and output buffers of one batch size. `constants` are the constant inputs, already on the device."""

    def __init__(self, model: BindableSession, device: BufferDevice, size: int, constants: dict[str, Any]) -> None:
        self._session = model.session
        self._device = device
        self._binding = model.session.io_binding()
        self._host = {one.name: np.zeros(_shape(one, size), one.dtype) for one in model.inputs}
        self._inputs = {one.name: _on_device(one, size, device) for one in model.inputs}
        self._outputs = {one.name: _on_device(one, size, device) for one in model.outputs}
        self.options = ort.RunOptions()
        if device.graphs:
            self.options.add_run_config_entry("gpu_graph_id", str(size))
        for buffer in self._host.values():
            device.pin(buffer)
        for name, value in (self._inputs | constants).items():
            self._binding.bind_ortvalue_input(name, value)
        for name, value in self._outputs.items():
            self._binding.bind_ortvalue_output(name, value)

    def fill(self, tensors: Mapping[str, NDArray[Any]], start: int, stop: int) -> None:
        """Copy the rows [start, stop) of `tensors` to the device, and fill up the bucket with copies of row `start`."""
        for name, buffer in self._host.items():
            buffer[: stop - start] = tensors[name][start:stop]
            buffer[stop - start :] = tensors[name][start]
            self._inputs[name].update_inplace(buffer)

    def run(self) -> None:
        """Run the model and wait for the outputs."""
        self._session.run_with_iobinding(self._binding, self.options)

    def read(self, rows: int) -> Tensors:
        """Return copies of the first `rows` rows of each output."""
        return {name: value.numpy()[:rows].copy() for name, value in self._outputs.items()}

    def free(self) -> None:
        for buffer in self._host.values():
            self._device.unpin(buffer)


def _on_device(tensor: ModelTensor, size: int, device: BufferDevice) -> Any:
    kind = np.dtype(tensor.dtype).type
    return ort.OrtValue.ortvalue_from_shape_and_type(_shape(tensor, size), kind, device.name, 0)


def _shape(tensor: ModelTensor, size: int) -> tuple[int, ...]:
    return (size, *(int(length or 0) for length in tensor.shape[1:]))
