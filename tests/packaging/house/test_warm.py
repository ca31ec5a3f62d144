"""The fork server of tests: a forked command behaves as a command that a shell starts."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support import warm
from tests.support.processes import Program, command
from tests.support.waiting import until

REPORT = """
import json, os, resource, signal, sys, threading
print(json.dumps({
    "argv": sys.argv,
    "cwd": os.getcwd(),
    "environment": {k: v for k, v in os.environ.items() if k != "LC_CTYPE"},
    "leads its group": os.getpgid(0) == os.getpid(),
    "main": [__name__, __file__, __spec__ is None, sys.modules["__main__"].__file__],
    "path": sys.path[0],
    "handlers": {number: str(signal.getsignal(number)).partition(" at ")[0] for number in sorted(signal.valid_signals())},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "threads": threading.active_count(),
    "files": sorted(set(os.listdir("/proc/self/fd")) - {"3"}),
    "nice": os.nice(0),
    "umask": os.umask(0o22),
    "limits": [resource.getrlimit(number) for number in range(16)],
    "encodings": [sys.stdin.encoding, sys.stdout.encoding, sys.stdout.line_buffering, sys.stderr.line_buffering],
    "input": sys.stdin.read(),
}), flush=True)
if len(sys.argv) > 1:
    signal.pause()
sys.exit(5)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "report"
    path.write_text(REPORT)
    return path


@contextlib.contextmanager
def forked(script: Path, *arguments: str) -> Iterator[warm.ForkedCommand]:
    folder = script.parent
    (folder / "in").write_text("input")
    with (folder / "in").open("rb") as stdin, (folder / "out").open("wb") as stdout, (folder / "err").open("wb") as stderr:
        yield warm.server().start([str(script), *arguments], (stdin, stdout, stderr), folder, own_group=True)


def test_a_forked_command_has_the_state_of_a_new_process(script: Path) -> None:
    with forked(script) as running:
        assert running.wait() == 5, script.with_name("err").read_text()
    new = subprocess.run(
        [sys.executable, str(script)],
        cwd=script.parent,
        env=dict(os.environ),
        input="input",
        capture_output=True,
        text=True,
        check=False,
        process_group=0,
    )
    assert new.returncode == 5, new.stderr
    assert json.loads(script.with_name("out").read_text()) == json.loads(new.stdout)


def test_a_forked_command_has_the_environment_variables_that_it_is_given(script: Path) -> None:
    environment = {"PATH": "/usr/bin", "ANY": "value"}
    completed = warm.run([str(script)], script.parent, environment=environment)
    assert json.loads(completed.stdout)["environment"] == environment


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_a_forked_command_without_a_zombie(script: Path, number: signal.Signals) -> None:
    with forked(script, "wait") as running:
        until(lambda: script.with_name("out").stat().st_size > 0, "the start")
        assert running.poll() is None
        os.killpg(running.pid, number)
        assert running.wait() == -number
    assert running.poll() == running.returncode == -number
    assert not psutil.pid_exists(running.pid)


def test_a_program_in_a_test_is_forked_only_with_the_environment_of_the_fork_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [command("scorer"), "--version"]
    logs = [tmp_path / name for name in ("first", "second", "third")]
    programs = [Program(arguments, logs[0]), Program(arguments, logs[1], {"A": "b"})]
    monkeypatch.setenv("ANY", "value")
    programs.append(Program(arguments, logs[2]))
    assert [program.wait() for program in programs] == [0, 0, 0]
    assert [isinstance(program.process, warm.ForkedCommand) for program in programs] == [True, False, False]
    assert len({log.read_text() for log in logs}) == 1


def test_a_fork_server_that_ended_fails_the_test(tmp_path: Path) -> None:
    server = warm.ForkServer()
    with (tmp_path / "file").open("w+b") as file:
        assert server.start([command("scorer"), "--version"], (file, file, file)).wait() == 0
        server.kill()
        with pytest.raises(AssertionError, match="has ended with -9"):
            server.start([command("scorer"), "--version"], (file, file, file))
