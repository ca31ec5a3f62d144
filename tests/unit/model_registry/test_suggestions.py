"""Names near a misspelt one."""

from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from pydantic import ValidationError

from model_registry import atomic_files, package, suggestions
from model_registry.errors import BadFile, BadReference, NotFound, Refused, Unreachable
from model_registry.onnx_tools import onnx_reader
from model_registry.stores.oci_layout import LayoutStore
from publisher.commands import audit
from publisher.errors import Fatal
from publisher.kafka.security import SecuritySettings
from publisher.runtime.configuration import SettingsError
from scorer.commands import bench, compare, offsets, schema
from scorer.decoding.schema_formats import schema_source
from scorer.rollout.controller import plan
from scorer.settings import load


def test_a_near_name_is_suggested_and_no_distant_one() -> None:
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


def secured(**files: Path) -> SecuritySettings:
    return SecuritySettings.model_validate({"protocol": "SSL", **files})


@pytest.mark.parametrize(
    "read",
    [
        plan.read,
        schema_source.file_bytes,
        lambda path: audit._kafka("127.0.0.1:1", path, []),
        lambda path: secured(ca_file=path),
        lambda path: secured(certificate_file=path, key_file=path),
    ],
    ids=["plan", "schema_file", "kafka-config", "ca_file", "certificate_file"],
)
def test_a_misspelt_file_of_a_command_or_a_setting_names_the_one_beside_it(
    read: Callable[[Path], object], tmp_path: Path
) -> None:
    (tmp_path / "file.yaml").touch()
    with pytest.raises((Fatal, typer.BadParameter, ValidationError)) as raised:
        read(tmp_path / "fiel.yaml")
    text = f"{raised.value} {getattr(raised.value, 'hint', '')}"
    assert f"did you mean '{tmp_path / 'file.yaml'}'?" in text


def compared(candidate: str) -> None:
    """Load a candidate of `scorer compare` from a registry without any version."""
    Path("index.json").write_text('{"schemaVersion": 2, "manifests": []}')
    with compare._load_version(load(bench.BASIS, ["model.source=oci:.", "model.cache=cache"]).settings, candidate):
        pass


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        (lambda folder: bench.settings_for(folder, None, []), "./wien"),
        (lambda folder: bench.settings_for(folder, None, []), "models.d/wien"),
        (schema.signature_of, "./wien"),
        (compared, "wien"),
    ],
    ids=["bench", "bench without a version", "schema", "compare"],
)
def test_a_misspelt_package_folder_of_a_command_names_the_one_beside_it(
    command: Callable[[str], object], folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    right = Path(folder).with_name("wine")
    right.mkdir(parents=True)
    right.with_name("wien.md").touch()
    with pytest.raises((BadReference, NotFound)) as raised:
        command(folder)
    assert raised.value.hint.startswith(f"did you mean '{right}'? ")


def test_a_misspelt_topic_of_the_offsets_command_names_an_input_topic_and_a_wrong_partition_none() -> None:
    rows = [offsets.PartitionOffsets("flights", 0, None, 0, 9), offsets.PartitionOffsets("labels", 0, None, 0, 9)]
    assert offsets.select(rows, "flights", None, "") == rows[:1]
    with pytest.raises(Fatal) as raised:
        offsets.select(rows, "flihgts", None, "see the offsets")
    assert raised.value.hint == "did you mean 'flights'?"
    with pytest.raises(Fatal) as raised:
        offsets.select(rows, "flights", 7, "see the offsets")
    assert raised.value.hint == "see the offsets"
