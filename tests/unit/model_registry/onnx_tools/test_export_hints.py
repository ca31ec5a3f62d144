"""A model that is not ONNX: the error names its exporter, and the file is not unpickled."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from model_registry.errors import Corrupt
from model_registry.onnx_tools import onnx_reader


class Bomb:
    """An object whose pickle writes a file when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._mark,)


@pytest.mark.parametrize(
    ("name", "exporter"),
    [
        ("model.pkl", "skl2onnx"),
        ("model.JOBLIB", "skl2onnx"),
        ("model.pt", "torch.onnx.export"),
        ("model.h5", "tf2onnx"),
        ("model.keras", "tf2onnx"),
        ("saved_model.pb", "tf2onnx"),
        ("model.cbm", "format='onnx'"),
        ("model.xgb", "onnxmltools.convert_xgboost"),
        ("model.json", "onnxmltools.convert_xgboost"),
        ("model.ubj", "onnxmltools.convert_xgboost"),
        ("model.txt", "onnxmltools.convert_lightgbm"),
        ("model.onnx", "export the model again"),
    ],
)
def test_the_exporter_of_another_format_is_named_and_nothing_is_unpickled(tmp_path: Path, name: str, exporter: str) -> None:
    path, mark = tmp_path / name, tmp_path / "executed"
    path.write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(Corrupt, match="is not a valid ONNX file") as raised:
        onnx_reader.read(path)
    assert exporter in raised.value.hint
    assert not mark.exists()
