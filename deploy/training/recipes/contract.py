"""The file contract between a training and a recipe, version 1: the files of a trial's folder, and their formats.

`deploy/training/recipes.md` describes the contract. A recipe that is a command of its own needs only the files; a recipe in
Python may import this module. The module starts no process and makes no decision.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from model_registry.errors import Refused
from model_registry.package.signature import InputField, Signature
from model_registry.package.signature_schema import parse_signature
from training.recipes import Params
from training.snapshot.rows import LabelledRows, Places
from training.snapshot.target import Target

CONTRACT = 1
ROWS = "rows"
TRAINING = "training.parquet"
VALIDATION = "validation.parquet"
SIGNATURE = "signature.json"
PARAMETERS = "parameters.json"
TRIAL = "trial.json"
BUDGET = "budget"
RESOURCES = "resources.json"
CHECKPOINT = "checkpoint"
METRICS = "metrics.jsonl"
MODEL = "model.onnx"
PACKAGE = "package"
LOG = "log.txt"
LABEL = "label"
"""The names of the files and folders in a trial's folder. `LABEL` is the name of the column with the outcomes."""

INPUTS = (ROWS, SIGNATURE, PARAMETERS, TRIAL, BUDGET, RESOURCES)

Goal = Literal["max", "min"]
"""Whether a larger or a smaller value of a metric is better."""

LINE_BYTES = 65_536
METRICS_BYTES = 64 * 1024 * 1024
MAX_VALUES = 100
NAME_LENGTH = 200
"""The limits of `metrics.jsonl`: bytes of a line, bytes of the file, metrics in a line, characters of a metric's name."""
MODEL_BYTES = 2**31 - 1
"""The limit of the size of a model: a protobuf message, and so an ONNX file, cannot be larger."""
TAIL_BYTES = 4_096
TAIL_LINES = 20
KEPT_LOG_BYTES = 1 << 20  # of the log of an earlier process: the log and later output share the size limit of a file
Document = TypeVar("Document")


class ContractViolation(Exception):
    """A file that a recipe wrote does not follow the contract. The message names the file, the value and the expected value."""


class Trial(msgspec.Struct, frozen=True):
    """The content of `trial.json`, the file that describes a trial to a recipe.

    Attributes:
        trial: The number of the trial.
        budget: The number of trees, epochs or other steps to train up to.
        final: Whether this is the training of the final model, which must write a model.
        metric: The metric by which trials are compared.
        deadline: The time at which the recipe is stopped (ISO 8601, UTC); None without a deadline.
    """

    trial: int
    budget: int
    final: bool
    seed: int
    metric: str
    goal: Goal
    deadline: str | None
    target: Target
    contract: int = CONTRACT


class Resources(msgspec.Struct, frozen=True):
    """The content of `resources.json`: the resources that a recipe may use.

    Attributes:
        workers: The number of processes or threads.
        gpus: The number of GPUs.
        rendezvous: The address through which the processes find each other; None if the launcher sets the address, as torchrun
            does.
    """

    workers: int = 1
    gpus: int = 0
    rendezvous: str | None = None


class MetricLine(NamedTuple):
    """One line of `metrics.jsonl`: the number of trained steps, and the metrics at this point."""

    budget: int
    values: dict[str, float]


def write_inputs(
    folder: Path, rows: Path, signature: Signature, parameters: Params, trial: Trial, resources: Resources
) -> None:
    """Write the inputs of a trial to its folder, which is created if it is missing. `checkpoint/` and outputs stay.

    Args:
        folder: The folder of the trial.
        rows: The folder with the Parquet files, which `rows` in the folder of the trial links to.
        signature: The signature of the model.
        parameters: The parameters of the trial.
        trial: The content of `trial.json`.
        resources: The content of `resources.json`.

    Raises:
        OSError: The files cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*INPUTS, LOG, METRICS):  # an earlier start of the recipe may have replaced them by links or folders
        path = folder / name
        if path != rows and (path.is_symlink() or (path.exists() and not path.is_file())):
            _remove(path)
    _shorten_log(folder / LOG)
    if not (folder / CHECKPOINT).is_dir():
        _remove(folder / CHECKPOINT)
        (folder / CHECKPOINT).mkdir()
    if folder / ROWS != rows:
        (folder / ROWS).symlink_to(os.path.relpath(rows, folder))
    documents = {
        SIGNATURE: signature.to_json().encode(),
        PARAMETERS: msgspec.json.encode(dict(parameters)),
        TRIAL: msgspec.json.encode(trial),
        BUDGET: str(trial.budget).encode(),
        RESOURCES: msgspec.json.encode(resources),
    }
    for name, content in documents.items():
        (folder / name).write_bytes(content + b"\n")


def read_trial(folder: Path) -> Trial:
    """Read `trial.json` in the folder of a trial."""
    return msgspec.json.decode((folder / TRIAL).read_bytes(), type=Trial)


def read_parameters(folder: Path) -> dict[str, int | float | str]:
    """Read `parameters.json` in the folder of a trial."""
    return msgspec.json.decode((folder / PARAMETERS).read_bytes(), type=dict[str, int | float | str])


def read_resources(folder: Path) -> Resources:
    """Read `resources.json` in the folder of a trial."""
    return msgspec.json.decode((folder / RESOURCES).read_bytes(), type=Resources)


def read_signature(folder: Path) -> Signature:
    """Read `signature.json` in the folder of a trial."""
    return parse_signature((folder / SIGNATURE).read_bytes())


def write_rows(rows: LabelledRows, signature: Signature, path: Path) -> str:
    """Write rows as a Parquet file atomically; return the SHA-256 of the file in hexadecimal.

    There is one column for each field of the signature, and the column `label` with the outcomes. If the default of a field is
    NaN, a missing value is stored as null. An array is stored as a list. The schema's metadata `target` is the target as JSON.
    Raises OSError.
    """
    columns = {field.name: _column(rows.tensors, signature, field) for field in signature.fields}
    table = pa.table({**columns, LABEL: pa.array(rows.outcomes)})
    table = table.replace_schema_metadata({"target": msgspec.json.encode(rows.target), "contract": str(CONTRACT)})
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    parquet.write_table(table, part, compression="zstd", compression_level=1, write_statistics=False)
    part.chmod(0o444)
    part.replace(path)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_rows(path: Path, signature: Signature) -> LabelledRows:
    """Read a file of `write_rows` and return its rows, with tensors of the signature.

    The positions of the rows are zeros, and their original records are empty: the file does not contain them.
    """
    table = parquet.read_table(path, memory_map=True)
    count = table.num_rows
    tensors = {}
    for tensor in signature.fed:
        parts = [_values(table[field.name], field) for field in tensor.fields]
        tensors[tensor.tensor] = np.concatenate(parts, axis=1).reshape(count, *tensor.row)
    outcomes = table[LABEL].to_numpy()
    zeros = np.zeros(count, np.int64)
    places = Places(("",), zeros.astype(np.int16), zeros.astype(np.int32), zeros, zeros)
    target = msgspec.json.decode(table.schema.metadata[b"target"], type=Target)
    return LabelledRows(tensors, outcomes, places, (), target=target)


def columns(signature: Signature, field: InputField) -> Iterator[tuple[str, slice]]:
    """Yield, for each tensor that contains a field, the name of the tensor and the slice of the field's columns."""
    for tensor in signature.fed:
        for at, tensor_field in enumerate(tensor.fields):
            if tensor_field.name == field.name:
                yield tensor.tensor, slice(0, tensor.width) if field.array is not None else slice(at, at + 1)


def converted(tensors: Mapping[str, NDArray[Any]], signature: Signature, to: Signature) -> Mapping[str, NDArray[Any]]:
    """Convert tensors from the layout of the signature `signature` to the layout of `to`.

    All fields of `to` must be fields of `signature`. Raises Refused if one is missing or differs in path, source or length.
    """
    if to == signature:
        return tensors
    fields = {field.name: field for field in signature.fields}
    for field in to.fields:
        source = fields.get(field.name)
        if source is None or (source.steps, source.source, source.array) != (field.steps, field.source, field.array):
            hint = f"use a field of the rows with the same path, source and length: {', '.join(fields)}"
            raise Refused(f"{PACKAGE}/{SIGNATURE} reads field {field.name!r}, but the rows have no such field", hint)
    count = len(next(iter(tensors.values())))
    result = {}
    for tensor in to.fed:
        parts = [_values(pa.chunked_array([_column(tensors, signature, fields[field.name])]), field) for field in tensor.fields]
        result[tensor.tensor] = np.concatenate(parts, axis=1).reshape(count, *tensor.row)
    return result


def append_metrics(folder: Path, budget: int, values: Mapping[str, float]) -> None:
    """Append a line to `metrics.jsonl`. Raises OSError."""
    with (folder / METRICS).open("ab") as stream:
        stream.write(msgspec.json.encode({"budget": budget, **values}) + b"\n")


def parse_line(line: bytes, number: int, most: int) -> MetricLine:
    """Parse a line of `metrics.jsonl`.

    Args:
        line: The line.
        number: The number of the line, for messages.
        most: The largest valid budget.

    Raises:
        ContractViolation: The line is not a JSON object with a whole number `budget` from 1 to `most`, and finite numbers.
    """
    place = f"{METRICS} line {number}"
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        raise ContractViolation(f"{place} is not a JSON object: {excerpt(line)}") from None
    if not isinstance(document, dict) or len(document) > MAX_VALUES:
        raise ContractViolation(f"{place} is not a JSON object of at most {MAX_VALUES} values: {excerpt(line)}")
    budget = document.pop(BUDGET, None)
    if not isinstance(budget, int) or isinstance(budget, bool) or not 1 <= budget <= most:
        raise ContractViolation(f"{place}: budget is {budget!r:.100}, but must be a whole number from 1 to {most}")
    values = {}
    for name, value in document.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ContractViolation(f"{place}: {name[:NAME_LENGTH]!r} is {value!r:.100}, but must be a number")
        if not abs(value) <= 1e300:  # also false for NaN; `math.isfinite` cannot convert an integer of 400 digits
            raise ContractViolation(f"{place}: {name[:NAME_LENGTH]!r} is {value!r:.100}, but must be finite")
        if len(name) > NAME_LENGTH:
            raise ContractViolation(f"{place}: the name of a metric has {len(name)} characters; the limit is {NAME_LENGTH}")
        if not name.isprintable():  # control characters, or half of a pair of surrogates, which is no UTF-8
            raise ContractViolation(f"{place}: the name of the metric {name!r} has characters that cannot be printed")
        values[name] = float(value)
    return MetricLine(budget, values)


class MetricsTail:
    """Reads the lines of a `metrics.jsonl` while a recipe writes them."""

    def __init__(self, folder: Path, most: int) -> None:
        """Open the metrics of a trial's folder; `most` is the largest valid budget.

        A line that a killed process did not complete is removed. Lines of earlier processes are read, but not returned by
        `new_lines`. Raises ContractViolation, OSError.
        """
        self._path = folder / METRICS
        self._most = most
        self._offset = 0
        self._number = 0
        self._end = b""
        self._best: dict[str, MetricLine] = {}
        self.new_lines()
        with contextlib.suppress(FileNotFoundError):
            os.truncate(self._path, self._offset)

    def new_lines(self, *, ended: bool = False) -> list[MetricLine]:
        """Return the lines that were completed since the last call.

        With `ended`, the last line needs no newline. If the recipe has replaced or rewritten the file since the last call, all
        lines of the new content are returned, and `score` ignores the earlier lines. Raises ContractViolation.
        """
        try:
            with _open(self._path) as stream:
                if os.fstat(stream.fileno()).st_size > METRICS_BYTES:
                    raise ContractViolation(f"{METRICS} has more than {METRICS_BYTES:,} bytes")
                stream.seek(self._offset - len(self._end))
                if stream.read(len(self._end)) != self._end:
                    self._offset, self._number, self._end, self._best = 0, 0, b"", {}
                    stream.seek(0)
                content = stream.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ContractViolation(f"{METRICS} cannot be read: {error.strerror}") from None
        *complete, rest = content.split(b"\n")
        if len(rest) > LINE_BYTES:
            raise ContractViolation(f"{METRICS} line {self._number + len(complete) + 1} has more than {LINE_BYTES:,} bytes")
        if ended and rest:
            complete.append(rest)
            rest = b""
        read = content[: len(content) - len(rest)]
        self._offset += len(read)
        self._end = (self._end + read[-LINE_BYTES:])[-LINE_BYTES:]
        return [metric_line for line in complete if (metric_line := self._parsed(line))]

    def _parsed(self, line: bytes) -> MetricLine | None:
        self._number += 1
        if not line.strip():
            return None
        parsed = parse_line(line, self._number, self._most)
        for name in parsed.values:
            if name not in self._best or parsed.budget >= self._best[name].budget:
                self._best[name] = parsed
        return parsed

    def score(self, metric: str) -> tuple[int, float]:
        """Return the largest budget of a line with this metric, and the last value of the metric at this budget.

        Raises ContractViolation if no line has the metric.
        """
        if metric in self._best:
            line = self._best[metric]
            return line.budget, line.values[metric]
        if not self._best:
            raise ContractViolation(f"{METRICS} has no line with {metric!r}: the recipe wrote no metrics")
        raise ContractViolation(f"{METRICS} has no line with {metric!r}; its metrics are {', '.join(sorted(self._best))[:500]}")


def log_tail(folder: Path) -> str:
    """Return the last lines of `log.txt` in a trial's folder; empty without a log. Control characters are replaced."""
    try:
        with _open(folder / LOG) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL_BYTES))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = ["".join(letter if letter.isprintable() else " " for letter in line).rstrip() for line in text.splitlines()]
    return "\n".join(lines[-TAIL_LINES:])


def _shorten_log(path: Path) -> None:
    """Keep only the end of a log, if there is one. Raises OSError."""
    if not path.exists() or (excess := path.stat().st_size - KEPT_LOG_BYTES) <= 0:
        return
    with _open(path) as stream:
        stream.seek(excess)
        kept = stream.read()
    path.write_bytes(kept)


def size(folder: Path) -> int:
    """Return the bytes that the files in a trial's folder use on the disk, except the rows."""
    total = 0
    rows = (folder / ROWS / TRAINING, folder / ROWS / VALIDATION)  # behind a link in a trial, but not in the final training
    for directory, _, names in os.walk(folder):
        for name in names:
            path = Path(directory, name)
            if path in rows:
                continue
            try:
                state = path.lstat()
            except FileNotFoundError:
                continue
            total += max(state.st_blocks * 512, state.st_size)
    return total


def remove_outputs(folder: Path) -> None:
    """Remove the checkpoint, the model and all other files of a failed trial. Inputs, log and metrics stay."""
    for entry in folder.iterdir():
        if entry.name not in (*INPUTS, LOG, METRICS):
            _remove(entry)


def _remove(path: Path) -> None:
    """Remove a file, a link or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_models(folder: Path) -> None:
    """Remove the model that an earlier process of the trial wrote, so that only a model of the next process counts."""
    for name in (MODEL, PACKAGE):
        _remove(folder / name)


def remove_metrics(folder: Path) -> None:
    """Remove the metrics that an earlier process of the trial wrote."""
    _remove(folder / METRICS)


def check_model(folder: Path) -> None:
    """Check that a final training has written its model: `model.onnx`, or `package/` with a model and a signature.

    Raises ContractViolation.
    """
    model, package = folder / MODEL, folder / PACKAGE
    if package.is_dir():
        missing = [name for name in (MODEL, SIGNATURE) if not (package / name).is_file()]
        if missing:
            raise ContractViolation(f"{PACKAGE}/ has no {missing[0]}")
        if model.exists():
            raise ContractViolation(f"it wrote both {MODEL} and {PACKAGE}/; it must write one of them")
        model = package / MODEL
    if not model.is_file() or model.is_symlink():
        raise ContractViolation(f"it ended with exit code 0, but wrote no {MODEL} and no {PACKAGE}/")
    if model.stat().st_size > MODEL_BYTES:
        raise ContractViolation(f"{MODEL} has {model.stat().st_size:,} bytes; the limit is {MODEL_BYTES:,}")


def _open(path: Path) -> BinaryIO:
    """Open a file that a recipe may have written. Raises OSError if it is not a regular file: a pipe could block for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def excerpt(line: bytes) -> str:
    """Return the start of a line that a recipe wrote, as a quoted text for a message."""
    return repr(line[:80].decode("utf-8", "replace"))


def _column(tensors: Mapping[str, NDArray[Any]], signature: Signature, field: InputField) -> Any:
    """Return the values of a field as an Arrow array."""
    tensor, place = next(columns(signature, field))
    values = tensors[tensor].reshape(len(tensors[tensor]), -1)[:, place]
    missing = np.isnan(values).all(axis=1) if field.allows_nan else np.zeros(len(values), np.bool_)
    if field.array is None:
        flat = values[:, 0]
        return pa.array(flat, pa.string() if values.dtype == object else None, mask=missing if missing.any() else None)
    flat = pa.array(values.ravel(), pa.string() if values.dtype == object else None)
    offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), flat, mask=pa.array(missing) if missing.any() else None)


def _values(column: Any, field: InputField) -> NDArray[Any]:
    """Return the values of a column as an array (B, n), with the default of the field in place of null."""
    dtype = np.dtype(object if field.dtype == "string" else field.dtype)
    combined = column.combine_chunks()
    if field.array is None:
        if combined.null_count:
            combined = combined.fill_null(pa.scalar(field.default, combined.type))
        return np.asarray(combined.to_numpy(zero_copy_only=False)).astype(dtype, copy=False).reshape(-1, 1)
    values = np.full((len(combined), field.array), field.default if combined.null_count else 0, dtype)
    values[combined.is_valid().to_numpy(zero_copy_only=False)] = (
        combined.drop_null().flatten().to_numpy(zero_copy_only=False).reshape(-1, field.array)
    )
    return values
