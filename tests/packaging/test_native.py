"""The wheel has the native library if the build had a compiler, and is pure if it had none or the library was switched off. The
name of the wheel shows this. An editable installation has the library beside its source."""

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
SCRIPT = (
    "from scorer.decoding.json.decoder import JsonDecoder; from model_registry.package.signature_schema import parse_signature;"
    "from scorer.native.load import native_library;"
    's = parse_signature(\'{"inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a"]}], "output": {"tensor": "y"}}\');'
    'batch = JsonDecoder(s, \'id\', 99).decode([b\'{"a": 1.5, "id": "e"}\'] * 9);'
    "print(native_library().status, batch.tensors['x'].sum(), batch.ids[8])"
)


def built(folder: Path, **environment: str) -> tuple[Path, str]:
    """Build the wheel of this checkout, and return it with the output of the build."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    completed = subprocess.run(build, cwd=ROOT, env={**os.environ, **environment}, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("*.whl")
    return wheel, completed.stdout + completed.stderr


def output_of_use(wheel: Path, folder: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    completed = subprocess.run([sys.executable, "-c", SCRIPT], cwd=folder, capture_output=True, text=True, check=True)
    return completed.stdout.strip()


@pytest.mark.debian("cc")
def test_with_a_compiler_the_wheel_has_the_library_and_names_the_platform(tmp_path: Path) -> None:
    wheel, _ = built(tmp_path / "wheel")
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-{platform}.whl")
    assert output_of_use(wheel, tmp_path / "unpacked") == "built and in use 13.5 e"


@pytest.mark.debian("cc")
@pytest.mark.parametrize("reason", ["SCORESTREAM_NATIVE=0", "no C compiler", "false failed"])
def test_the_wheel_is_pure_if_the_library_is_switched_off_or_no_compiler_works(tmp_path: Path, reason: str) -> None:
    no_compiler = {"PATH": str(tmp_path), "CC": ""}
    environment = {"no C compiler": no_compiler, "false failed": {"CC": "false"}}.get(reason, {compiler.SWITCH: "0"})
    wheel, output = built(tmp_path / "wheel", **environment)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert OBJECT not in zipfile.ZipFile(wheel).namelist()
    assert reason in " ".join(output.split())
    assert output_of_use(wheel, tmp_path / "unpacked").endswith("13.5 e")


@pytest.mark.debian("cc")
def test_an_editable_installation_has_the_library_beside_its_source_until_it_is_switched_off(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, source / part)
    library = source / OBJECT
    library.unlink(missing_ok=True)
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
    for switch, exists in (("1", True), ("0", False)):
        completed = subprocess.run(
            install, env={**os.environ, compiler.SWITCH: switch}, check=False, capture_output=True, text=True
        )
        assert completed.returncode == 0, completed.stderr
        assert library.exists() is exists
        assert not (tmp_path / "target" / "scorer").exists()


@pytest.mark.debian("cc")
def test_ziglang_is_required_only_if_no_compiler_works(tmp_path: Path) -> None:
    """The test calls the hook of the backend, as a build frontend does."""
    script = "import hatchling.build as b; print(b.get_requires_for_build_wheel())"

    def requires_ziglang(**environment: str) -> bool:
        command = [sys.executable, "-c", script]
        completed = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=True
        )
        return "ziglang" in completed.stdout

    has_wheel = sysconfig.get_platform() in ("linux-x86_64", "linux-aarch64")
    assert requires_ziglang(PATH=str(tmp_path), CC="") is has_wheel
    assert requires_ziglang(CC="false") is has_wheel
    assert not requires_ziglang(PATH=str(tmp_path), CC="", SCORESTREAM_NATIVE="0")
    assert not requires_ziglang()
