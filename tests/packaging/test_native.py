"""The native scanner in the wheel: there where the build had a compiler, left out where it had none or was told so. The wheel's
name says which. An editable installation has it beside its source."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from scorer.native import compiler
from tests.support.environment import ROOT

OBJECT = "scorer/native/libscorestream.so"
PARTS = ("pyproject.toml", "README.md", "LICENSE", "scorer", "publisher", "model_registry", "deploy/training")
SAY = (
    "from scorer.decoding.json.decoder import JsonDecoder; from model_registry.package.signature_schema import parse_signature;"
    "from scorer.native.load import native_library;"
    's = parse_signature(\'{"inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a"]}], "output": {"tensor": "y"}}\');'
    'found = JsonDecoder(s, \'id\', 99).decode([b\'{"a": 1.5, "id": "e"}\'] * 9);'
    "print(native_library().status, found.tensors['x'].sum(), found.ids[8])"
)


def built(folder: Path, **environment: str) -> tuple[Path, str]:
    """The wheel of this checkout, and what its build said."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(build, cwd=ROOT, env={**os.environ, **environment}, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("*.whl")
    return wheel, done.stdout + done.stderr


def said(wheel: Path, folder: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    done = subprocess.run([sys.executable, "-c", SAY], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.debian("cc")
def test_with_a_compiler_the_wheel_has_it_and_names_the_platform(tmp_path: Path) -> None:
    wheel, _ = built(tmp_path / "wheel")
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-{platform}.whl")
    assert said(wheel, tmp_path / "unpacked") == "built and in use 13.5 e"


@pytest.mark.debian("cc")
@pytest.mark.parametrize("why", ["SCORESTREAM_NATIVE=0", "no C compiler", "false failed"])
def test_switched_off_or_without_a_compiler_that_works_the_wheel_is_pure(tmp_path: Path, why: str) -> None:
    no_compiler = {"PATH": str(tmp_path), "CC": ""}
    environment = {"no C compiler": no_compiler, "false failed": {"CC": "false"}}.get(why, {compiler.SWITCH: "0"})
    wheel, words = built(tmp_path / "wheel", **environment)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert OBJECT not in zipfile.ZipFile(wheel).namelist()
    assert why in " ".join(words.split())
    assert said(wheel, tmp_path / "unpacked").endswith("13.5 e")


@pytest.mark.debian("cc")
def test_an_editable_installation_has_it_beside_its_source_until_it_is_switched_off(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, source / part)
    found = source / OBJECT
    found.unlink(missing_ok=True)
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--target",
        str(tmp_path / "target"),
        "--upgrade",
        "--editable",
        str(source),
    ]
    for switch, there in (("1", True), ("0", False)):
        done = subprocess.run(install, env={**os.environ, compiler.SWITCH: switch}, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert found.exists() is there
        assert not (tmp_path / "target" / "scorer").exists()


@pytest.mark.debian("cc")
def test_ziglang_is_asked_for_only_where_no_compiler_works(tmp_path: Path) -> None:
    """As a build frontend asks: by the backend's hook."""
    ask = "import hatchling.build as b; print(b.get_requires_for_build_wheel())"

    def wanted(**environment: str) -> bool:
        command = [sys.executable, "-c", ask]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
        return "ziglang" in done.stdout

    has_wheel = sysconfig.get_platform() in ("linux-x86_64", "linux-aarch64")
    assert wanted(PATH=str(tmp_path), CC="") is has_wheel
    assert wanted(CC="false") is has_wheel
    assert not wanted(PATH=str(tmp_path), CC="", SCORESTREAM_NATIVE="0")
    assert not wanted()
