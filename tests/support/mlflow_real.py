"""`python -m tests mlflow-models`: the real MLflow writes model folders, and model-registry makes versions of them.

MLflow is installed into a temporary environment beside the packages of this one, so that the check does not need it.
"""

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from typer.testing import CliRunner

from model_registry.cli import app
from tests.support.environment import ROOT

PACKAGE = "mlflow-skinny==3.17.2"
WRITE = """
import mlflow.lightgbm, mlflow.onnx, mlflow.sklearn, numpy
from lightgbm import LGBMClassifier
from mlflow.models import infer_signature
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression
from tests.support import mlflow_folders
from pathlib import Path

rows = mlflow_folders.table()
pipeline = mlflow_folders.sklearn(Path("byhand"))
numbers = rows[["amount", "items"]]
trees = LGBMClassifier(n_estimators=5, verbose=-1).fit(numbers, (numbers["amount"] > 80).astype(int))
array = numbers.to_numpy(numpy.float32)
linear = LogisticRegression().fit(array, array[:, 0] > 80)
exported = to_onnx(linear, array[:1], options={"zipmap": False})
signed = lambda model, table: {"signature": infer_signature(table, model.predict(table)), "input_example": table[:3]}
mlflow.sklearn.save_model(pipeline, "pipeline", **signed(pipeline, rows))
mlflow.sklearn.save_model(pipeline, "pickled", serialization_format="cloudpickle", **signed(pipeline, rows))
mlflow.sklearn.save_model(linear, "array", **signed(linear, array))
mlflow.lightgbm.save_model(trees, "trees", **signed(trees, numbers))
mlflow.lightgbm.save_model(trees.booster_, "booster", **signed(trees.booster_, numbers))
tensors = {"X": array}
mlflow.onnx.save_model(exported, "tensors", signature=infer_signature(tensors), input_example={"X": array[:3]})
"""


def main() -> int:
    """Write the folders, package and push each of them, and print the notes. Returns 0 if all were pushed."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        python = _environment(folder / "environment")
        subprocess.run([python, "-W", "ignore", "-c", WRITE], cwd=folder, check=True)
        for name in ("pipeline", "pickled", "array", "trees", "booster", "tensors"):
            drafted = json.loads(
                _command("init", str(folder / name), "--into", str(folder / "out" / name), "--trust-pickle", "--json")
            )
            signature = folder / "out" / name / "signature.json"
            document = json.loads(signature.read_text())
            document["output"]["index"] = 1
            signature.write_text(json.dumps(document))
            (folder / "out" / name / "README.md").write_text(f"# {name}\n")
            pushed = _command("push", str(folder / "out" / name), f"oci:{folder}/registry/{name}:1.0.0", "--accept")
            print(f"{name}: {'; '.join(drafted['notes'])}\n  {pushed.strip()}")
    return 0


def _environment(folder: Path) -> str:
    """Create an environment with MLflow, which also sees the packages of this one; return its interpreter."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", PACKAGE], check=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    paths = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "zz-tests.pth").write_text("".join(f"{path}\n" for path in (*paths, ROOT)))
    return python


def _command(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    if result.exit_code:
        sys.exit(result.output)
    return result.stdout


if __name__ == "__main__":
    sys.exit(main())
