"""Report how many records a command has written if it ends with an error, SIGINT or SIGTERM.

A signal is raised as an exception, but never inside a step that must be counted as a whole.
"""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Self

import typer
from confluent_kafka import KafkaException

from publisher.errors import Fatal
from publisher.runtime.command_line import err_console, print_data

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM asks the command to end. `exit_code` is the exit code that a shell reports for this signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Interruption:
    """Delays a signal during steps that must not be interrupted: `with interruption: step()`.

    The first signal during a step raises Interrupted when the step ends. A second signal raises Interrupted at once.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._pending: int | None = None

    def receive(self, number: int, frame: FrameType | None = None) -> None:  # noqa: ARG002
        """Handle a signal, in the main thread. Raises Interrupted, unless a step delays the signal."""
        if self._depth and self._pending is None:
            self._pending = number
            return
        self._pending = None
        raise Interrupted(number)

    def __enter__(self) -> Self:
        self._depth += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._depth -= 1
        if kind is None and self._depth == 0 and self._pending is not None:
            number = self._pending
            self._pending = None
            raise Interrupted(number)


@contextlib.contextmanager
def handle_signals() -> Iterator[Interruption]:
    """Handle SIGINT and SIGTERM in this block, except signals that the process ignores from its start (`nohup`, `&`)."""
    interruption = Interruption()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    handled_signals = [number for number in SIGNALS if before[number] != signal.SIG_IGN]
    for number in handled_signals:
        signal.signal(number, interruption.receive)
    try:
        yield interruption
    finally:
        for number in handled_signals:
            signal.signal(number, before[number])


@contextlib.contextmanager
def report_progress(
    as_json: bool, counts: Callable[[], Any], progress: Callable[[], tuple[str, str]]
) -> Iterator[Interruption]:
    """Report how much a command has done, if the `with` block fails or is interrupted.

    The error message contains the counts. If `as_json` is True, the counts are also printed on stdout. If the block succeeds,
    nothing is reported, because the command prints its own result.

    Args:
        as_json: whether to print the counts as JSON.
        counts: returns the counts as a JSON value.
        progress: returns the counts in words, and a hint how to continue; the hint is empty if there is nothing to continue.

    Raises:
        Fatal: if the block raises Fatal or KafkaException. The message then contains the counts.
        typer.Exit: with code 130 after SIGINT and 143 after SIGTERM.
    """

    def report() -> None:
        if as_json:
            print_data(as_json, counts(), lambda: None)

    def fatal(error: str, hint: str, **code: int) -> Fatal:
        report()
        done, continuation = progress()
        return Fatal(f"{error}; {done}", "; ".join(part for part in (hint, continuation) if part), **code)

    with handle_signals() as interruption:
        try:
            yield interruption
        except KeyboardInterrupt as error:
            report()
            done, continuation = progress()
            err_console.print(f"interrupted: {done}")
            if continuation:
                err_console.print(f"hint: {continuation}")
            raise typer.Exit(error.exit_code if isinstance(error, Interrupted) else 130) from None
        except Fatal as error:
            raise fatal(str(error), error.hint, exit_code=error.exit_code) from error
        except KafkaException as error:
            raise fatal(f"the Kafka client failed: {error.args[0].str()}", "see the broker's log; try again") from error
        except Exception:
            report()
            err_console.print(": ".join(part for part in progress() if part))
            raise
