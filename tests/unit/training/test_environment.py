"""The environment of a run: pins that override existing settings, and a digest that does not depend on the machine."""

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.oci.digests import is_digest
from training import environment
from training.environment import PINS, distributions, pinned, recorded, sources

NAMES = st.sampled_from([*PINS, "PATH", "HOME"])


@given(st.dictionaries(NAMES, st.text(max_size=3) | st.sampled_from(list(PINS.values()))))
def test_pins_override_settings_and_nothing_else_changes(environ: dict[str, str]) -> None:
    pinned_variables = pinned(environ)
    assert (pinned_variables is None) == (PINS.items() <= environ.items())
    if pinned_variables is not None:
        assert PINS.items() <= pinned_variables.items()
        assert {k: v for k, v in pinned_variables.items() if k not in PINS} == {
            k: v for k, v in environ.items() if k not in PINS
        }
        assert pinned(pinned_variables) is None


@pytest.mark.parametrize("before", [{"OPENBLAS_CORETYPE": "SkylakeX", "PYTHONHASHSEED": "7"}, {}])
def test_a_program_starts_again_with_pins_and_its_arguments(before: dict[str, str]) -> None:
    code = "from training.environment import pin; pin(); import json, os, sys; print(json.dumps([dict(os.environ), sys.argv]))"
    completed = subprocess.run(
        [sys.executable, "-c", code, "a b", "--c"], env={**os.environ, **before}, capture_output=True, text=True, check=True
    )
    environ, arguments = json.loads(completed.stdout)
    assert PINS.items() <= environ.items()
    assert arguments[1:] == ["a b", "--c"]


def test_the_program_pins_before_numpy_is_loaded() -> None:
    code = "import sys, training.cli; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


RECORD = """numpy/__init__.py,sha256=abc,10
"numpy/a,b.py",sha256=abc,10
numpy/core.so,sha256=def,20
"""
NOISE = """numpy/__pycache__/__init__.cpython-311.pyc,,
../../../bin/f2py,sha256=123,200
/usr/bin/f2py,sha256=123,200
numpy-2.0.dist-info/RECORD,,
numpy-2.0.dist-info/INSTALLER,sha256=pip,4
numpy-2.0.dist-info/REQUESTED,sha256=,0
numpy-2.0.dist-info/direct_url.json,sha256=fed,40
"""


def test_a_record_without_the_notes_of_the_installation_is_the_wheels() -> None:
    assert list(recorded(RECORD + NOISE)) == RECORD.splitlines()


def installed(folder: Path, name: str, version: str, record: str) -> metadata.Distribution:
    dist_info = folder / f"{name}-{version}.dist-info"
    dist_info.mkdir(parents=True, exist_ok=True)
    (dist_info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (dist_info / "RECORD").write_text(record)
    return metadata.Distribution.at(dist_info)


def test_machines_with_the_same_wheels_have_the_same_digest(tmp_path: Path) -> None:
    lines = RECORD.splitlines(keepends=True)
    first_machine = [installed(tmp_path / "a", "numpy", "2.0", RECORD + NOISE), installed(tmp_path / "a", "b", "1", "")]
    second_machine = [
        installed(tmp_path / "b", "B", "1", ""),
        installed(tmp_path / "b", "numpy", "2.0", "".join(reversed(lines))),
        installed(tmp_path / "b", "pip", "99", "pip/x.py,sha256=1,1"),
        installed(tmp_path / "b", "scorestream", "0.1", "__editable__.pth,sha256=1,1"),
    ]
    assert distributions(first_machine) == distributions(second_machine)


@pytest.mark.parametrize(
    "changed", [("numpy", "2.1", RECORD), ("numpy", "2.0", RECORD.replace("def", "dee")), ("numpyy", "2.0", RECORD)]
)
def test_another_version_file_or_name_is_another_environment(changed: Any, tmp_path: Path) -> None:
    assert distributions([installed(tmp_path / "a", "numpy", "2.0", RECORD)]) != distributions(
        [installed(tmp_path / "b", *changed)]
    )


def test_sources_count_and_files_built_from_them_do_not(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    before = sources(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").touch()
    (tmp_path / "a.so").touch()
    assert sources(tmp_path) == before
    (tmp_path / "a.py").write_text("2")
    assert sources(tmp_path) != before


def test_the_digest_is_the_same_in_another_process() -> None:
    code = "from training.environment import digest; print(digest())"
    completed = subprocess.run(
        [sys.executable, "-c", code],
        cwd="/",
        env={**os.environ, "PYTHONHASHSEED": "5"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout.strip() == environment.digest()
    assert is_digest(environment.digest())
