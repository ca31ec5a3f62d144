"""Names near a misspelt one."""

from pathlib import Path

import pytest

from model_registry import files, nearest
from model_registry.errors import BadFile, Unreachable
from model_registry.onnx import file
from publisher.process.configuration import SettingsError
from scorer.settings import load


def test_the_nearest_name_is_asked_for_and_no_far_one() -> None:
    assert nearest.question("flihgts", ["labels", "flights"]) == "did you mean 'flights'?"
    assert nearest.question("flihgts", ["payments"]) == ""


def test_a_misspelt_configuration_file_names_the_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "scorer.yaml").touch()
    with pytest.raises(SettingsError, match=r"there is no such file; did you mean '.*/scorer\.yaml'\?"):
        load(tmp_path / "scorer.yml", [])
    with pytest.raises(SettingsError, match=r"there is no such file$"):
        load(tmp_path / "absent" / "scorer.yml", [])


def test_a_misspelt_model_and_example_file_name_the_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    with pytest.raises(Unreachable) as raised:
        file.read(tmp_path / "modle.onnx")
    assert raised.value.hint == f"did you mean '{tmp_path / 'model.onnx'}'?"
    with pytest.raises(BadFile) as bad:
        files.read_named("examples", tmp_path / "model.onx")
    assert bad.value.hint == f"did you mean '{tmp_path / 'model.onnx'}'?"
