"""A child process whose end is an error of its parent."""

import multiprocessing
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from model_registry import sandbox
from model_registry.errors import Refused
from model_registry.sandbox import Sandbox, SandboxDied


def perform_action(action: str) -> object:
    if action == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    if action == "exit":
        os._exit(7)
    if action == "endless":
        signal.pause()
    if action == "refuse":
        raise Refused("no", "a hint")
    if action == "confined":
        adjusted = Path("/proc/self/oom_score_adj").read_text()
        return int(adjusted), os.getpid()
    return action


def child(pipe: Connection) -> None:
    sandbox.confine()
    sandbox.serve(pipe, perform_action, (Refused,))


@pytest.fixture
def child_sandbox() -> Sandbox:
    return Sandbox(multiprocessing.get_context("spawn"), child)


def test_a_child_answers_and_raises_errors_of_its_parent_until_it_is_closed(child_sandbox: Sandbox) -> None:
    assert child_sandbox.request("hello") == "hello"
    with pytest.raises(Refused, match="no") as refused:
        child_sandbox.request("refuse")
    assert refused.value.hint == "a hint"
    assert child_sandbox.request("confined") == (1_000, child_sandbox.pid)
    child_sandbox.close()
    assert not Path(f"/proc/{child_sandbox.pid}").exists()


@pytest.mark.parametrize(("action", "message"), [("signal", "was ended by SIGSEGV"), ("exit", "ended with code 7")])
def test_the_error_of_a_dead_child_has_its_exit_status(child_sandbox: Sandbox, action: str, message: str) -> None:
    with pytest.raises(SandboxDied, match=message) as died:
        child_sandbox.request(action)
    assert died.value.in_time


def test_a_child_that_does_not_answer_prints_its_stacks_and_is_killed(capfd: pytest.CaptureFixture[str]) -> None:
    hanging = Sandbox(multiprocessing.get_context("spawn"), child)
    assert hanging.request("hello") == "hello"
    with pytest.raises(SandboxDied, match=r"did not answer within 0.2 s") as died:
        hanging.request("endless", seconds=0.2)
    assert "in perform_action" in capfd.readouterr().err
    assert not died.value.in_time
    assert not Path(f"/proc/{hanging.pid}").exists()


def test_an_error_of_the_wait_is_raised_while_the_child_works(child_sandbox: Sandbox) -> None:
    def cancelled() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        child_sandbox.request("endless", waiting=cancelled)
    child_sandbox.close()


def test_work_in_another_process_returns_raises_and_dies_as_an_error() -> None:
    assert sandbox.run_apart(perform_action, "hello") == "hello"
    with pytest.raises(Refused, match="no"):
        sandbox.run_apart(perform_action, "refuse")
    with pytest.raises(Refused, match=r"a process ended with code 3 when it loaded the model"):
        sandbox.run_apart(sys.exit, 3)
