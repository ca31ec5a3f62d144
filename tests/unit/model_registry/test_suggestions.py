"""Names near a misspelt one."""

from pathlib import Path

import pytest

from model_registry import atomic_files, package, suggestions
from model_registry.errors import BadFile, Refused, Unreachable
from model_registry.onnx_tools import onnx_reader
from model_registry.stores.oci_layout import LayoutStore
from publisher.runtime.configuration import SettingsError
from scorer.settings import load


def test_the_nearest_name_is_asked_for_and_no_far_one() -> None:
    assert suggestions.question("flihgts", ["labels", "flights"]) == "did you mean 'flights'?"
    assert suggestions.question("flihgts", ["payments"]) == ""


def test_a_misspelt_configuration_file_names_the_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "scorer.yaml").touch()
    with pytest.raises(SettingsError, match=r"there is no such file; did you mean '.*/scorer\.yaml'\?"):
        load(tmp_path / "scorer.yml", [])
    with pytest.raises(SettingsError, match=r"there is no such file$"):
        load(tmp_path / "absent" / "scorer.yml", [])


def test_a_misspelt_folder_in_the_middle_of_a_path_is_named_if_the_rest_exists(tmp_path: Path) -> None:
    (tmp_path / "registry" / "wine").mkdir(parents=True)
    assert suggestions.file_question(tmp_path / "registri" / "wine") == f"did you mean '{tmp_path / 'registry' / 'wine'}'?"
    assert suggestions.file_question(tmp_path / "registri" / "other") == ""
    assert suggestions.file_question(tmp_path / "registry" / "wine") == ""


def test_a_misspelt_folder_of_a_version_and_of_a_registry_name_the_ones_beside_them(tmp_path: Path) -> None:
    (tmp_path / "wine-1.0.0").mkdir()
    with pytest.raises(Refused, match="there is no folder") as raised:
        package.find_model(tmp_path / "wine-1.0.1")
    assert raised.value.hint == f"did you mean '{tmp_path / 'wine-1.0.0'}'?"
    with pytest.raises(Refused, match=r"has no model\.onnx"):
        package.find_model(tmp_path / "wine-1.0.0")
    with pytest.raises(Unreachable) as unreachable:
        list(LayoutStore(tmp_path / "wine-1.0").tags())
    assert f"did you mean '{tmp_path / 'wine-1.0.0'}'?" in unreachable.value.hint


def test_a_misspelt_model_and_example_file_name_the_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    with pytest.raises(Unreachable) as raised:
        onnx_reader.read(tmp_path / "modle.onnx")
    assert raised.value.hint == f"did you mean '{tmp_path / 'model.onnx'}'?"
    with pytest.raises(BadFile) as caught:
        atomic_files.read_named("examples", tmp_path / "model.onx")
    assert caught.value.hint == f"did you mean '{tmp_path / 'model.onnx'}'?"
