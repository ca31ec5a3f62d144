"""Model folders as MLflow 3.17.2 writes them (mlflow-skinny, scikit-learn 1.9.1, LightGBM 4.7.0), written without MLflow.

`python -m tests mlflow-models` packages folders that the real package writes.
"""

import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from skops import io

COLUMNS = [("amount", "double"), ("items", "long"), ("country", "string")]
NUMBERS = COLUMNS[:2]
MLMODEL = """\
flavors:
  python_function:
    env:
      conda: conda.yaml
      virtualenv: python_env.yaml
    loader_module: mlflow.{flavor}
    python_version: 3.11.7
  {flavor}:
{details}
is_signature_from_type_hint: false
mlflow_version: 3.17.2
model_id: null
model_uuid: 1c48cc28d1cd4058a08e1b105bac5002
prompts: null
saved_input_example_info:
  artifact_path: input_example.json
{orient}  serving_input_path: serving_input_example.json
  type: {kind}
signature:
  inputs: '{inputs}'
  outputs: '[{{"type": "tensor", "tensor-spec": {{"dtype": "int64", "shape": [-1]}}}}]'
  params: null
type_hint_from_example: false
utc_time_created: '2026-11-28 11:45:14.021282'
"""


def table(rows: int = 200) -> pd.DataFrame:
    """Return generated orders."""
    chance = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "amount": chance.gamma(2, 40, rows).round(2),
            "items": chance.integers(1, 9, rows),
            "country": chance.choice(["DE", "FR", "US"], rows),
        }
    )


def write(
    path: Path,
    flavor: str,
    details: Mapping[str, Any],
    example: Any,
    inputs: Sequence[Mapping[str, Any]] | None = None,
    columns: Sequence[tuple[str, str]] = (),
) -> None:
    """Write the files of a folder beside the model: MLmodel and the input example.

    Args:
        path: The folder, which exists.
        flavor: The flavour.
        details: The properties of the flavour.
        example: A table, or a document of tensors.
        inputs: The inputs of the signature; None takes those of `columns`.
        columns: The columns of the signature, each with its type.
    """
    frame = isinstance(example, pd.DataFrame)
    document = json.loads(example.to_json(orient="split", index=False)) if frame else example
    (path / "input_example.json").write_text(json.dumps(document))
    stated = [{"type": kind, "name": name, "required": True} for name, kind in columns] if inputs is None else inputs
    (path / "MLmodel").write_text(
        MLMODEL.format(
            flavor=flavor,
            details="\n".join(f"    {name}: {json.dumps(value)}" for name, value in details.items()),
            orient="  pandas_orient: split\n" if frame else "",
            kind="dataframe" if frame else "ndarray",
            inputs=json.dumps(stated),
        )
    )


def sklearn(path: Path, *, pickled: bool = False, classes: int = 2) -> Any:
    """Write the folder of a pipeline with a ColumnTransformer, and return the pipeline."""
    rows = table()
    target = np.digitize(rows["amount"], [80, 120][: classes - 1])
    columns = ColumnTransformer(
        [("n", StandardScaler(), ["amount", "items"]), ("t", OneHotEncoder(handle_unknown="ignore"), ["country"])]
    )
    model = make_pipeline(columns, LogisticRegression()).fit(rows, target)
    path.mkdir()
    name = "model.pkl" if pickled else "model.skops"
    (path / name).write_bytes(pickle.dumps(model) if pickled else io.dumps(model))
    details = {"code": None, "pickled_model": name, "serialization_format": "cloudpickle" if pickled else "skops"}
    write(path, "sklearn", details | {"sklearn_version": "1.9.1"}, rows.head(3), columns=COLUMNS)
    return model


def lightgbm_model(path: Path, *, booster: bool) -> Any:
    """Write the folder of a LightGBM classifier, and return the classifier."""
    rows = table()[["amount", "items"]]
    model = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(rows, rows["amount"] > 80)
    path.mkdir()
    if booster:
        model.booster_.save_model(path / "model.lgb")
        details = {"data": "model.lgb", "model_class": "lightgbm.basic.Booster", "serialization_format": "skops"}
    else:
        (path / "model.skops").write_bytes(io.dumps(model))
        details = {"data": "model.skops", "model_class": "lightgbm.sklearn.LGBMClassifier", "serialization_format": "skops"}
    write(path, "lightgbm", details | {"lgb_version": "4.7.0"}, rows.head(3), columns=NUMBERS)
    return model
