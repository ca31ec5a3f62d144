"""Store rows as memory-mapped files, so that many worker processes share one copy of the numbers."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from training.snapshot.rows import LabelledRows, Places
from training.snapshot.target import Target

INDEX = "rows.json"
PLACES = ("topic", "partition", "offset", "time_ms")


class SharedColumn(msgspec.Struct):
    """A tensor in a file. For strings the file holds indices into `names`; for numbers `names` is None."""

    tensor: str
    file: str
    names: list[str] | None = None


class Index(msgspec.Struct):
    """The index of a folder of rows: the names of the topics, the target, and the tensors with their files."""

    topics: tuple[str, ...]
    target: Target
    columns: list[SharedColumn]


def write(rows: LabelledRows, folder: Path) -> str:
    """Write the rows, except the original records, to a folder; return the SHA-256 of tensors and outcomes."""
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    columns = []
    for at, (name, tensor) in enumerate(sorted(rows.tensors.items())):
        column = SharedColumn(name, f"tensor-{at}.npy")
        if tensor.dtype == object:
            column.names = sorted(set(tensor.ravel().tolist()))
            numbers = {text: number for number, text in enumerate(column.names)}
            flat = np.fromiter((numbers[text] for text in tensor.ravel().tolist()), np.int32, tensor.size)
            tensor = flat.reshape(tensor.shape)
        columns.append(column)
        np.save(folder / column.file, tensor)
        digest.update(msgspec.json.encode([name, str(tensor.dtype), tensor.shape, column.names]))
        digest.update(np.ascontiguousarray(tensor).data)
    np.save(folder / "outcomes.npy", rows.outcomes)
    digest.update(np.ascontiguousarray(rows.outcomes).data)
    for name in PLACES:
        np.save(folder / f"{name}.npy", getattr(rows.places, name))
    (folder / INDEX).write_bytes(msgspec.json.encode(Index(rows.places.topics, rows.target, columns)))
    return digest.hexdigest()


def read(folder: Path) -> LabelledRows:
    """Map the rows of a folder into memory. The original records are missing: `values` is empty."""
    index = msgspec.json.decode((folder / INDEX).read_bytes(), type=Index)
    tensors = {column.tensor: _tensor(folder, column) for column in index.columns}
    places = Places(index.topics, *(_mapped(folder / f"{name}.npy") for name in PLACES))
    return LabelledRows(tensors, _mapped(folder / "outcomes.npy"), places, (), target=index.target)


def _tensor(folder: Path, column: SharedColumn) -> NDArray[Any]:
    values = _mapped(folder / column.file)
    return values if column.names is None else np.array(column.names, object)[values]


def _mapped(path: Path) -> NDArray[Any]:
    mapped: NDArray[Any] = np.load(path, mmap_mode="r")
    return mapped
