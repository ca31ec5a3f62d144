"""Converts a model folder of MLflow into an ONNX file: flavours onnx (as it is), sklearn (skl2onnx) and lightgbm (onnxmltools).

A pickle is loaded only with the user's consent, because loading a pickle runs the code that it names. Each model is loaded and
converted in a child process.
"""

import pickle
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from model_registry.errors import Refused, RegistryError
from model_registry.onnx_tools import imported_model, mlflow_folder, onnx_reader
from model_registry.onnx_tools.imported_model import ImportedModel
from model_registry.onnx_tools.mlflow_folder import MlflowModel
from model_registry.sandbox import run_apart

ROW = "x"  # the name of the input of a converted model that takes its columns as one row
OPSETS = {"": 15, "ai.onnx.ml": 3}
CLOSE = 1e-4  # largest difference between the original's and the converted model's numbers, relative to numbers above 1
TRUSTED = frozenset(
    {"collections.OrderedDict", "lightgbm.basic.Booster", "lightgbm.sklearn.LGBMClassifier", "lightgbm.sklearn.LGBMRegressor"}
)
"""Types in a skops file that are loaded in addition to those that skops trusts. Types that MLmodel names are not trusted."""


def convert(folder: Path, scratch: Path, *, trust_pickle: bool = False) -> ImportedModel:
    """Convert a model folder of MLflow.

    Args:
        folder: The folder with the file MLmodel.
        scratch: A folder for the converted model and its examples.
        trust_pickle: Whether a pickle may be loaded, and types in a skops file that are not known to be safe.

    Raises:
        Refused: The folder is malformed, a library is missing, the model is a pickle without consent, it cannot be converted,
            or the converted model gives other scores than the original.
    """
    saved = mlflow_folder.read(folder)
    if saved.flavor == "onnx":
        return _onnx(saved, scratch)
    per_column, labels, notes = run_apart(_convert, saved, scratch / "model.onnx", trust_pickle)
    row = () if per_column else tuple(column.name for column in saved.columns)
    return ImportedModel(
        scratch / "model.onnx",
        imported_model.write_examples(scratch, mlflow_folder.named_rows(saved.example, ROW)),
        imported_model.write_labels(scratch, labels) if len(labels) > 2 else None,
        row,
        _optional(saved),
        notes=notes,
    )


def _onnx(saved: MlflowModel, scratch: Path) -> ImportedModel:
    model = imported_model.member(saved.folder, saved.details.get("data"))
    inputs = onnx_reader.read(model).inputs
    names = {tensor.name for tensor in inputs}
    row = tuple(column.name for column in saved.columns if column.name not in names) if len(inputs) == 1 else ()
    events = mlflow_folder.named_rows(saved.example, inputs[0].name) if len(inputs) == 1 else saved.example
    return ImportedModel(model, imported_model.write_examples(scratch, events), columns=row, optional=_optional(saved))


def _optional(saved: MlflowModel) -> frozenset[str]:
    return frozenset(column.name for column in saved.columns if not column.required)


def _convert(saved: MlflowModel, target: Path, trust_pickle: bool) -> tuple[bool, list[str], list[str]]:
    """Load and convert a model, write the ONNX file, and compare the scores of the input example.

    Returns:
        Whether each column is an input of its own, the class names, and notes.
    """
    warnings.simplefilter("ignore")
    model = _load(saved, trust_pickle)
    try:
        per_column, converted = _to_onnx(saved, model)
    except RegistryError:
        raise
    except ImportError as error:
        raise _missing(saved.flavor, error) from None
    except Exception as error:  # noqa: BLE001 - the converters raise any exception for a model that they do not support
        reason = " ".join(str(error).split())[:300]
        hint = "export it by hand: model_registry/docs/your-own-model.md has recipes"
        raise Refused(f"{type(model).__name__} in {saved.folder} cannot be converted to ONNX: {reason}", hint) from None
    target.write_bytes(converted)
    classes = [str(label) for label in getattr(model, "classes_", ())]
    try:
        notes = [_compare(saved, model, target, per_column)]
    except RegistryError:
        raise
    except Exception as error:  # noqa: BLE001 - the model raises any exception for rows that it cannot score
        reason = " ".join(str(error).split())[:200]
        raise Refused(
            f"the models cannot be compared on the input example of {saved.folder}: {type(error).__name__}: {reason}",
            "save the model again with an input example that it scores, or without one",
        ) from None
    scores = "probabilities" if hasattr(model, "predict_proba") else "scores"
    notes += [f"the columns of the {scores} are the classes {', '.join(classes[:12])}"] if classes else []
    wide = [column.name for column in saved.columns if column.type in ("double", "long")]
    notes += [f"columns of 64 bits are fed as float32: {', '.join(wide[:12])}"] if wide else []
    return per_column, classes, notes


def _load(saved: MlflowModel, trust_pickle: bool) -> Any:
    if saved.flavor == "lightgbm" and saved.details.get("model_class") == "lightgbm.basic.Booster":
        return _booster(saved)
    path = imported_model.member(saved.folder, saved.details.get("pickled_model") or saved.details.get("data"))
    if saved.flavor == "lightgbm" and path.suffix in (".lgb", ".txt"):
        return _booster(saved)
    if saved.details.get("serialization_format") == "skops" or path.suffix == ".skops":
        return _load_skops(path, trust_pickle)
    if not trust_pickle:
        raise Refused(
            f"{path} is a pickle, and loading a pickle runs any code that its author put into it",
            "if you trust its author, add --trust-pickle; or save the model with serialization_format='skops'",
        )
    try:
        with path.open("rb") as stream:
            return pickle.load(stream)
    except ImportError as error:
        raise _missing(saved.flavor, error) from None
    except Exception as error:  # noqa: BLE001 - a pickle may raise any exception
        version = saved.details.get("sklearn_version") or saved.details.get("lgb_version")
        hint = f"load it with the versions that saved it ({saved.flavor} {version})"
        raise Refused(f"{path} cannot be loaded: {type(error).__name__}: {str(error)[:200]}", hint) from None


def _load_skops(path: Path, trust_pickle: bool) -> Any:
    try:
        from skops import io
    except ImportError:
        raise Refused(
            f"{path} is a skops file, and skops is not installed", "pip install skops scikit-learn skl2onnx"
        ) from None
    try:
        unknown = io.get_untrusted_types(file=path)
        unsafe = sorted(set(unknown) - TRUSTED)
        if unsafe and not trust_pickle:
            raise Refused(
                f"{path} has objects of types that are not known to be safe: {', '.join(unsafe)[:300]}",
                "loading them may run code: if you trust the author of the model, repeat the command with --trust-pickle",
            )
        return io.load(path, trusted=unknown)
    except RegistryError:
        raise
    except ImportError as error:
        raise _missing("sklearn", error) from None
    except Exception as error:  # noqa: BLE001 - a damaged file raises any exception
        raise Refused(f"{path} cannot be loaded: {type(error).__name__}: {str(error)[:200]}", "save the model again") from None


def _booster(saved: MlflowModel) -> Any:
    path = imported_model.member(saved.folder, saved.details.get("data"))
    try:
        import lightgbm

        return lightgbm.Booster(model_file=str(path))
    except ImportError as error:
        raise _missing("lightgbm", error) from None
    except lightgbm.basic.LightGBMError as error:
        raise Refused(f"{path} is not a model of LightGBM: {str(error)[:200]}", "save the model again") from None


def _missing(flavor: str, error: ImportError) -> Refused:
    packages = "lightgbm onnxmltools packaging skl2onnx scikit-learn" if flavor == "lightgbm" else "skl2onnx scikit-learn"
    return Refused(
        f"a model of the flavour {flavor} cannot be converted, because a library is not installed: {error}",
        f"pip install {packages}, and {error.name or 'the library'} if the model needs it",
    )


def _to_onnx(saved: MlflowModel, model: Any) -> tuple[bool, bytes]:
    """Return whether each column is an input of its own, and the converted model."""
    if saved.flavor == "lightgbm":
        return False, _lightgbm_to_onnx(saved, model)
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import BooleanTensorType, FloatTensorType, StringTensorType

    per_column = bool(saved.columns) and _reads_columns(saved, model)
    if per_column:
        kinds: dict[str, Callable[..., Any]] = {
            "float32": FloatTensorType,
            "string": StringTensorType,
            "bool": BooleanTensorType,
        }
        types = [(column.name, kinds[mlflow_folder.COLUMN_DTYPES[column.type]]([None, 1])) for column in saved.columns]
    else:
        types = [(ROW, FloatTensorType([None, _width(saved, model)]))]
    data: bytes = to_onnx(model, initial_types=types, options=_options(model), target_opset=OPSETS).SerializeToString()
    return per_column, data


def _options(model: Any) -> dict[Any, Any] | None:
    """Return the options of skl2onnx that make a classifier's scores one tensor; None if the model is no classifier.

    The scores are the probabilities, or the decision function if the classifier has no probabilities.
    """
    if not hasattr(model, "classes_"):
        return None
    if hasattr(model, "predict_proba"):
        return {"zipmap": False}
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    return {id(last): {"raw_scores": True} | ({} if type(last).__name__ == "LinearSVC" else {"zipmap": False})}


def _lightgbm_to_onnx(saved: MlflowModel, model: Any) -> bytes:
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType

    types = [(ROW, FloatTensorType([None, _width(saved, model)]))]
    if np.asarray(getattr(model, "classes_", ())).dtype.kind == "b":  # onnxmltools (1.16) cannot name boolean classes
        model = model.booster_
    data: bytes = convert_lightgbm(model, initial_types=types, zipmap=False, target_opset=OPSETS[""]).SerializeToString()
    return data


def _reads_columns(saved: MlflowModel, model: Any) -> bool:
    """Return whether a model reads columns by name, or reads a column that is no number."""
    steps = [step for _, step in getattr(model, "steps", [("model", model)])]
    by_name = any(type(step).__name__ == "ColumnTransformer" for step in steps)
    return by_name or any(column.type not in mlflow_folder.NUMBERS for column in saved.columns)


def _width(saved: MlflowModel, model: Any) -> int:
    if any(column.type not in mlflow_folder.NUMBERS for column in saved.columns):
        raise Refused(
            f"the model of {saved.folder} has columns that are no numbers", "put a ColumnTransformer before the model"
        )
    features = getattr(model, "n_features_in_", None) or (model.num_feature() if hasattr(model, "num_feature") else None)
    width = len(saved.columns) or saved.width or features
    if not width:
        raise Refused(f"{saved.folder} does not state how many columns the model has", "save it with a signature")
    return int(width)


def _compare(saved: MlflowModel, model: Any, converted: Path, per_column: bool) -> str:
    """Compare the scores of the converted model with those of the original on the input example, and describe the result.

    Raises Refused if they differ.
    """
    if not saved.example:
        return "the folder has no input example: the converted model was not compared with the original"
    try:
        import onnxruntime as ort
    except ImportError:
        return "ONNX Runtime is not installed: the converted model was not compared with the original"
    ort.set_default_logger_severity(4)
    expected = np.asarray(_original_scores(saved, model), float)
    session = ort.InferenceSession(str(converted), providers=["CPUExecutionProvider"])
    rows = _tensors(saved, per_column)
    outputs = [output for output in session.run(None, rows) if np.asarray(output).dtype.kind == "f"]
    actual = np.asarray(outputs[-1], float)
    actual = (
        actual[:, 1] if expected.ndim == 1 and actual.ndim == 2 and actual.shape[1] == 2 else actual.reshape(expected.shape)
    )
    scale = np.maximum(1.0, np.abs(expected))
    if not np.all(np.abs(actual - expected) <= CLOSE * scale):
        at = int(np.argmax(np.max(np.abs(actual - expected).reshape(len(expected), -1), axis=1)))
        raise Refused(
            f"the original model scores row {at + 1} of the input example {expected[at]}, but the converted model {actual[at]}",
            "export the model by hand, and compare its scores: model_registry/docs/your-own-model.md",
        )
    return f"the converted model gives the scores of the original to the {len(expected)} rows of the input example"


def _original_scores(saved: MlflowModel, model: Any) -> Any:
    rows: Any = _array(saved, np.float64)
    if saved.columns:
        try:
            import pandas
        except ImportError:
            raise Refused("the input example is a table, and pandas is not installed", "pip install pandas") from None
        rows = pandas.DataFrame([dict(row) for row in saved.example], columns=[column.name for column in saved.columns])
    for method in ("predict_proba", "decision_function"):
        if hasattr(model, method):
            return getattr(model, method)(rows)
    scores = model.predict(rows) if hasattr(model, "predict") else None
    is_number = scores is not None and np.asarray(scores).dtype.kind == "f"
    return model.transform(rows) if not is_number and hasattr(model, "transform") else scores  # distances, not clusters


def _tensors(saved: MlflowModel, per_column: bool) -> dict[str, Any]:
    if not per_column:
        return {ROW: _array(saved, np.float32)}
    dtypes = {column.name: mlflow_folder.COLUMN_DTYPES[column.type] for column in saved.columns}
    return {
        name: np.array([[_value(row, name, dtype)] for row in saved.example], object if dtype == "string" else dtype)
        for name, dtype in dtypes.items()
    }


def _array(saved: MlflowModel, dtype: Any) -> Any:
    """Return the rows of the input example as an array (B, n); None if a column is not numeric."""
    if any(column.type not in mlflow_folder.NUMBERS for column in saved.columns):
        return None
    names: Sequence[str] = [column.name for column in saved.columns]
    return np.array([[_value(row, name, "float32") for name in names] if names else row[""] for row in saved.example], dtype)


def _value(row: dict[str, Any], name: str, dtype: str) -> Any:
    return row.get(name, "" if dtype == "string" else np.nan if dtype == "float32" else False)
