"""Reads a model folder of MLflow: the file MLmodel, the signature, and the input example. The model itself is not opened.

MLflow is not needed. The layout is that of MLflow 2 and 3; it was compared with folders that MLflow 3.17.2 wrote.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_registry.errors import Refused
from model_registry.onnx_tools import imported_model
from model_registry.untrusted_input import json_documents, yaml_documents

MLMODEL = "MLmodel"
FLAVORS = ("onnx", "lightgbm", "sklearn")
"""The flavours that can be packaged, the best first: a folder may have several."""
MAX_BYTES = 1 << 20
MAX_EXAMPLES = 100
NUMBERS = {"double": "float32", "float": "float32", "long": "float32", "integer": "float32"}
COLUMN_DTYPES = NUMBERS | {"string": "string", "boolean": "bool"}
"""The dtype of the model's input for each type of a column that events can feed."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the signature: its name, its type in MLflow's terms, and whether it is required."""

    name: str
    type: str
    required: bool = True


@dataclass(frozen=True, slots=True)
class MlflowModel:
    """The content of an MLmodel file.

    Attributes:
        folder: The folder.
        flavor: The flavour that is used, one of FLAVORS.
        details: The properties of the flavour, unchecked.
        columns: The columns of the signature, if the model takes a table; else empty.
        width: The number of columns, if the model's only input is a tensor (n, width) without a name; else None.
        example: The rows of the input example: values by the name of the column or tensor ("" for a tensor without a name).
    """

    folder: Path
    flavor: str
    details: Mapping[str, Any]
    columns: tuple[Column, ...]
    width: int | None
    example: tuple[dict[str, Any], ...]


def read(folder: Path) -> MlflowModel:
    """Read a model folder.

    Raises:
        Refused: The folder has no flavour that can be packaged, or one of its files is malformed.
        Unreachable: The folder cannot be read.
    """
    try:
        document = yaml_documents.load(imported_model.read_member(folder, MLMODEL, MAX_BYTES))
    except json_documents.UnreadableDocument as error:
        raise Refused(f"{folder / MLMODEL} is not valid YAML: {error}", "save the model again with MLflow") from None
    flavors = document.get("flavors") if isinstance(document, dict) else None
    if not isinstance(flavors, dict):
        raise Refused(f"{folder / MLMODEL} has no flavors", "save the model again with MLflow")
    flavor = next((name for name in FLAVORS if isinstance(flavors.get(name), dict)), None)
    if flavor is None:
        listed = ", ".join(sorted(map(str, flavors)))
        hint = "save it with mlflow.onnx; init also reads the flavours sklearn and lightgbm"
        raise Refused(f"{folder / MLMODEL} has the flavours {listed:.200}, none of which can be packaged", hint)
    columns, width = _inputs(folder, document.get("signature"))
    example = _example(folder, document.get("saved_input_example_info"))
    return MlflowModel(folder, flavor, flavors[flavor], columns, width, example)


def _inputs(folder: Path, signature: Any) -> tuple[tuple[Column, ...], int | None]:
    """Return the columns of the signature and the width, as in MlflowModel."""
    stated = signature.get("inputs") if isinstance(signature, dict) else None
    if stated is None:
        return (), None
    try:
        inputs = json_documents.ANY.decode(str(stated).encode())
    except json_documents.UnreadableDocument as error:
        raise Refused(f"the signature in {folder / MLMODEL} is not valid JSON: {error}", "save the model again") from None
    if not isinstance(inputs, list) or not all(isinstance(entry, dict) for entry in inputs):
        raise Refused(f"the signature in {folder / MLMODEL} is not a list of inputs", "save the model again")
    if any(entry.get("type") == "tensor" for entry in inputs):
        return (), _width(inputs)
    return tuple(_column(folder, entry) for entry in inputs), None


def _width(inputs: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the number of columns, if the only input is a tensor (n, width) without a name; else None."""
    spec = inputs[0].get("tensor-spec")
    shape = spec.get("shape") if isinstance(spec, dict) else None
    if len(inputs) > 1 or "name" in inputs[0] or not isinstance(shape, list) or len(shape) != 2:
        return None
    return shape[1] if isinstance(shape[1], int) and shape[1] > 0 else None


def _column(folder: Path, entry: Mapping[str, Any]) -> Column:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        hint = "infer the signature from a table with named columns"
        raise Refused(f"the signature in {folder / MLMODEL} has a column without a name", hint)
    if entry.get("type") not in COLUMN_DTYPES:
        listed = ", ".join(COLUMN_DTYPES)
        raise Refused(
            f"column {name!r:.100} of the signature has the type {entry.get('type')!r:.50}, which no event field can feed",
            f"train on columns of the types {listed}; for arrays save the model with mlflow.onnx",
        )
    return Column(name, str(entry["type"]), entry.get("required") is not False)


def _example(folder: Path, info: Any) -> tuple[dict[str, Any], ...]:
    """Return the rows of the input example; empty if there is none, or if it has a form that is no table or tensor."""
    if not isinstance(info, dict) or info.get("type") not in ("dataframe", "ndarray", "json_object"):
        return ()
    document = imported_model.read_json(folder, info.get("artifact_path"))
    if isinstance(document, dict) and document.keys() == {"inputs"} and info["type"] == "ndarray":
        document = document["inputs"]  # MLflow 2
    if isinstance(document, dict) and isinstance(document.get("columns"), list) and isinstance(document.get("data"), list):
        names = [str(name) for name in document["columns"]]
        rows = [dict(zip(names, row, strict=False)) for row in document["data"] if isinstance(row, list)]
    elif isinstance(document, dict) and document and all(isinstance(values, list) for values in document.values()):
        rows = [dict(zip(document, values, strict=True)) for values in zip(*document.values(), strict=False)]
    elif isinstance(document, list) and all(isinstance(row, dict) for row in document):
        rows = document
    elif isinstance(document, list):
        rows = [{"": row} for row in document]
    else:
        return ()
    return tuple({key: value for key, value in row.items() if value is not None} for row in rows[:MAX_EXAMPLES])


def named_rows(rows: Sequence[Mapping[str, Any]], tensor: str) -> list[dict[str, Any]]:
    """Return rows with the key "" replaced by `tensor`, the name of the model's only input."""
    return [{name or tensor: value for name, value in row.items()} for row in rows]
