"""The command line that the programs share: version, completion, findings, JSON, errors."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from publisher.errors import Fatal
from publisher.runtime import command_line
from publisher.runtime.command_line import DefaultCommandGroup, Finding, LazyCommands, print_findings
from publisher.runtime.configuration import SettingsError
from tests.support.canary import URL, seen_in
from tests.support.processes import command

PROGRAMS = ("scorer", "publisher", "model_registry")


@pytest.mark.parametrize("package", PROGRAMS)
def test_every_program_prints_its_version_and_completes(package: str) -> None:
    def printed(*options: str) -> str:
        arguments = [sys.executable, "-m", package, *options]
        named = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # there may be no shell
        return subprocess.run(arguments, capture_output=True, text=True, check=True, env=named).stdout

    assert printed("--version").strip() == version("scorestream")
    assert "COMPLETE" in printed("--show-completion", "bash")


def findings() -> Iterator[Finding]:
    yield Finding("broker", True, "answers", "not told")
    yield Finding("topic", False, "[red]x[/] is missing", "make it")


def test_findings_are_printed_at_once_and_a_failed_one_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as end:
        print_findings(findings(), as_json=False)
    assert end.value.exit_code == 1
    assert capsys.readouterr().err == "ok   broker: answers\nFAIL topic: [red]x[/] is missing\n     hint: make it\n"
    print_findings([Finding("broker", True, "answers")], as_json=False)


@pytest.mark.parametrize("as_json", [False, True])
def test_findings_print_no_credentials_of_urls(as_json: bool, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with pytest.raises(typer.Exit):
        print_findings([Finding("broker", False, f"{URL} does not answer", f"check {URL}")], as_json=as_json)
    printed = capfdbinary.readouterr()
    assert b"http://***@127.0.0.1:1/path" in printed.out + printed.err
    assert seen_in((printed.out + printed.err).decode()) == []


def test_findings_as_json(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with pytest.raises(typer.Exit):
        print_findings(findings(), as_json=True)
    printed = capfdbinary.readouterr()
    document = json.loads(printed.out)
    assert (document["ok"], [finding["ok"] for finding in document["checks"]]) == (False, [True, False])
    assert printed.err == b""


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (Fatal("no broker", "is it running?"), 4, "error: no broker\nhint: is it running?\n"),
        (Fatal("refused", "", 3), 3, "error: refused\n"),
        (SettingsError("one\ntwo"), 2, "error: one\nerror: two\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 130, ""),
    ],
)
def test_an_error_is_a_line_and_a_hint(
    error: BaseException, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer()

    @app.command()
    def fail() -> None:
        raise error

    monkeypatch.setattr("sys.argv", ["fail"])
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # no long-running command has configured logging
    app.pretty_exceptions_enable = False
    with pytest.raises(SystemExit) as end:
        command_line.run(app)
    assert (end.value.code, capsys.readouterr().err.strip()) == (code, message.strip())


LONG_RUNNING = [("scorer", "run"), ("scorer", "rollout", "run"), ("publisher", "run")]


@pytest.mark.parametrize("words", LONG_RUNNING)
def test_a_fatal_error_of_a_long_running_command_is_a_json_line(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("nmae: n")
    completed = subprocess.run(
        [command(words[0]), *words[1:], "config.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    lines = [json.loads(line) for line in completed.stderr.splitlines()]
    assert completed.returncode == 2
    assert {(line["level"], line["code"]) for line in lines} == {("CRITICAL", 2)}
    assert "nmae (config.yaml): unknown key; the nearest valid name is 'name'" in {line["message"] for line in lines}
    assert all(datetime.fromisoformat(line["time"]).utcoffset() is not None for line in lines)


def test_a_verb_is_imported_when_it_is_called() -> None:
    verbs = LazyCommands({"there": "publisher.commands.run:run", "nowhere": "no.such.module:verb"})
    assert list(verbs) == ["there", "nowhere"]
    assert verbs["there"].name == "there"
    with pytest.raises(ModuleNotFoundError):
        verbs["nowhere"]


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["a.yaml"], "list a.yaml False"),
        (["--json", "a.yaml"], "list a.yaml True"),
        (["list", "a.yaml"], "list a.yaml False"),
        (["get", "a.yaml"], "get a.yaml"),
    ],
)
def test_the_first_command_of_a_group_runs_without_its_name(arguments: list[str], output: str) -> None:
    app = typer.Typer(cls=DefaultCommandGroup)

    @app.command("list")
    def list_paths(path: str, as_json: bool = typer.Option(False, "--json")) -> None:
        print("list", path, as_json)

    @app.command()
    def get(path: str) -> None:
        print("get", path)

    assert CliRunner().invoke(app, arguments).stdout.strip() == output
    assert "Usage" in CliRunner().invoke(app, ["--help"]).stdout
