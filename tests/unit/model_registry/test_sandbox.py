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


def deed(what: str) -> object:
    if what == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "exit":
        os._exit(7)
    if what == "endless":
        signal.pause()
    if what == "refuse":
        raise Refused("no", "a hint")
    if what == "confined":
        adjusted = Path("/proc/self/oom_score_adj").read_text()
        return int(adjusted), os.getpid()
    return what


def child(pipe: Connection) -> None:
    sandbox.confine()
    sandbox.serve(pipe, deed, (Refused,))


@pytest.fixture
def made() -> Sandbox:
    return Sandbox(multiprocessing.get_context("spawn"), child)


def test_a_child_answers_and_raises_what_its_parent_knows_until_it_is_closed(made: Sandbox) -> None:
    assert made.ask("hello") == "hello"
    with pytest.raises(Refused, match="no") as refused:
        made.ask("refuse")
    assert refused.value.hint == "a hint"
    assert made.ask("confined") == (1_000, made.pid)
    made.close()
    assert not Path(f"/proc/{made.pid}").exists()


@pytest.mark.parametrize(("what", "said"), [("signal", "was ended by SIGSEGV"), ("exit", "ended with code 7")])
def test_the_death_of_a_child_says_how_it_ended(made: Sandbox, what: str, said: str) -> None:
    with pytest.raises(SandboxDied, match=said) as died:
        made.ask(what)
    assert died.value.in_time


def test_a_child_that_does_not_answer_is_killed(made: Sandbox) -> None:
    with pytest.raises(SandboxDied, match=r"did not answer within 0.2 s") as died:
        made.ask("endless", seconds=0.2)
    assert not died.value.in_time
    assert not Path(f"/proc/{made.pid}").exists()


def test_an_error_of_the_wait_is_raised_while_the_child_works(made: Sandbox) -> None:
    def cancelled() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.ask("endless", waiting=cancelled)
    made.close()


def test_work_apart_returns_raises_and_dies_as_an_error() -> None:
    assert sandbox.run_apart(deed, "hello") == "hello"
    with pytest.raises(Refused, match="no"):
        sandbox.run_apart(deed, "refuse")
    with pytest.raises(Refused, match=r"a process ended with code 3 when it loaded the model"):
        sandbox.run_apart(sys.exit, 3)
