"""Signals of a command that counts its output, and the counts that it reports at any end."""

import json
import os
import signal

import pytest
import typer
from confluent_kafka import KafkaError, KafkaException

from publisher.errors import REFUSED, Fatal
from publisher.runtime.interruption import Interrupted, Interruption, handle_signals, report_progress


def test_a_step_is_not_interrupted_by_the_first_signal() -> None:
    interruption, received = Interruption(), []

    def step(*numbers: int) -> None:
        with interruption:
            for number in numbers:
                interruption.receive(number)
                received.append(number)

    with pytest.raises(Interrupted) as raised:
        step(signal.SIGTERM)
    assert received == [signal.SIGTERM]
    assert raised.value.exit_code == 143
    step()  # it was raised once
    with pytest.raises(Interrupted):
        step(signal.SIGINT, signal.SIGINT)
    assert received == [signal.SIGTERM, signal.SIGINT], "the second is raised at once"


def test_a_signal_outside_of_a_step_is_raised_at_once() -> None:
    with pytest.raises(Interrupted):
        Interruption().receive(signal.SIGINT)


def test_an_error_of_a_step_is_not_replaced_by_a_signal() -> None:
    interruption = Interruption()

    def step() -> None:
        with interruption:
            interruption.receive(signal.SIGINT)
            raise ValueError("own")

    with pytest.raises(ValueError, match="own"):
        step()


def test_an_ignored_signal_stays_ignored_and_handlers_are_restored() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with handle_signals():
            os.kill(os.getpid(), signal.SIGINT)
            with pytest.raises(Interrupted):
                os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is before[signal.SIGTERM]
    finally:
        signal.signal(signal.SIGINT, before[signal.SIGINT])


def fails(error: BaseException, *, as_json: bool) -> None:
    with report_progress(as_json, lambda: {"written": 3}, lambda: ("3 were written", "run it again")):
        raise error


@pytest.mark.parametrize(
    ("error", "message", "hint", "code"),
    [
        (Fatal("refused", "ask", REFUSED), "refused; 3 were written", "ask; run it again", REFUSED),
        (Fatal("away"), "away; 3 were written", "run it again", 4),
        (KafkaException(KafkaError(KafkaError._FAIL)), "3 were written", "see the broker's log; try again; run it again", 4),
    ],
)
def test_an_error_ends_with_the_counts(
    error: Exception, message: str, hint: str, code: int, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with pytest.raises(Fatal) as raised:
        fails(error, as_json=True)
    assert message in str(raised.value)
    assert (raised.value.hint, raised.value.exit_code) == (hint, code)
    assert json.loads(capfdbinary.readouterr().out) == {"written": 3}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_with_the_counts_and_the_code_of_the_signal(
    number: int, code: int, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with pytest.raises(typer.Exit) as raised:
        fails(Interrupted(number), as_json=True)
    assert raised.value.exit_code == code
    captured = capfdbinary.readouterr()
    assert json.loads(captured.out) == {"written": 3}


def test_an_unexpected_error_is_raised_after_the_counts(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with pytest.raises(ValueError, match="a bug"):
        fails(ValueError("a bug"), as_json=True)
    assert json.loads(capfdbinary.readouterr().out) == {"written": 3}
