"""What an examiner makes of a package that the input format does not suit, with a real child."""

from pathlib import Path

import pytest
from onnx import TensorProto, helper

from model_registry import package
from scorer.backends import ModelRefused
from scorer.crashes.examiner import Examiner
from tests.support import models
from tests.unit.scorer.events.schema_events import settings_of


def whole_numbers(path: Path) -> None:
    io = models.tensor("x", TensorProto.INT64, "N", 1), models.tensor("y", TensorProto.FLOAT, "N", 1)
    models.save([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], [io[0]], [io[1]], path)


def test_a_version_that_the_input_format_cannot_feed_is_refused(tmp_path: Path) -> None:
    inputs = [{"tensor": "x", "dtype": "int64", "fields": ["a"]}]
    folder = models.package(tmp_path / "m", whole_numbers, {"inputs": inputs, "output": {"tensor": "y"}})
    examiner = Examiner(settings_of("float32", id="header:ce_id"), lambda: None)
    try:
        with pytest.raises(ModelRefused, match="carries floats only"):
            examiner.load(package.read(folder, name="m", version="1", digest="sha256:" + "0" * 64))
    finally:
        examiner.close()
