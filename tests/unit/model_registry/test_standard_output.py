"""Commands whose stdout is closed early, or is not UTF-8."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.processes import command

FOLDER = Path(__file__).parents[3] / "scorer" / "demo" / "data" / "flight-delay-1.0.0"


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    path = tmp_path / "scorer.yaml"
    path.write_text(
        "{name: n, kafka: {bootstrap_servers: 'localhost:1'}, input: {topics: [a]}, output: {topic: b}, "
        "model: {source: 'oci:./r/m', tag: prod}}"
    )
    return path


def into_closed_pipe(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    read, write = os.pipe()
    os.close(read)
    try:
        return subprocess.run([command(arguments[0]), *arguments[1:]], stdout=write, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(write)


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_command_whose_reader_has_closed_the_pipe_exits_as_interrupted(configuration: Path, flags: tuple[str, ...]) -> None:
    completed = into_closed_pipe("scorer", "config", str(configuration), *flags)
    assert (completed.returncode, completed.stderr) == (130, b"")


def test_a_registry_command_whose_reader_has_closed_the_pipe_exits_as_interrupted(tmp_path: Path) -> None:
    reference = f"oci:{tmp_path}/registry/model:1.0.0"
    subprocess.run([command("model-registry"), "push", str(FOLDER), reference], check=True, capture_output=True)
    completed = into_closed_pipe("model-registry", "inspect", reference)
    assert (completed.returncode, completed.stderr) == (130, b"")


def test_a_terminal_that_is_not_utf_8_gets_escaped_text() -> None:
    encoding = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    completed = subprocess.run(
        [command("scorer"), "bench", str(FOLDER)], env=os.environ | encoding, capture_output=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert b"\\u2588" in completed.stdout
