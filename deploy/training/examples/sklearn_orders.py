"""Train scikit-learn with a ColumnTransformer as a recipe: numbers are scaled, categories become indicator columns."""

import json
from pathlib import Path

from pyarrow import parquet
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

trial = json.loads(Path("trial.json").read_text())
parameters = json.loads(Path("parameters.json").read_text())
tensors = json.loads(Path("signature.json").read_text())["inputs"]  # one tensor for each field
columns = {kind: [t["tensor"] for t in tensors if t["dtype"] == kind] for kind in ("float32", "string")}

training = parquet.read_table("rows/training.parquet").to_pandas()
encode = ColumnTransformer(
    [
        ("numbers", StandardScaler(), columns["float32"]),
        ("names", OneHotEncoder(handle_unknown="ignore", sparse_output=False), columns["string"]),
    ]
)
classify = GradientBoostingClassifier(n_estimators=trial["budget"], random_state=trial["seed"], **parameters)
model = make_pipeline(encode, classify).fit(training.drop(columns="label"), training["label"])

if trial["final"]:
    kinds = {"float32": FloatTensorType, "string": StringTensorType}
    inputs = [(t["tensor"], kinds[t["dtype"]]([None, 1])) for t in tensors]
    onnx = to_onnx(model, initial_types=inputs, options={"zipmap": False}, target_opset=15)
    Path("model.onnx").write_bytes(onnx.SerializeToString())
else:
    validation = parquet.read_table("rows/validation.parquet").to_pandas()
    rows, label = validation.drop(columns="label"), validation["label"]
    with Path("metrics.jsonl").open("a") as metrics:
        for step, scores in enumerate(classify.staged_predict_proba(encode.transform(rows)), 1):
            metrics.write(json.dumps({"budget": step, "auc": roc_auc_score(label, scores[:, 1])}) + "\n")
