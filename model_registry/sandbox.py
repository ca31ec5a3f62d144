"""Runs work that may crash in a child process, which answers the requests of its parent.

If the child dies, the parent gets an exception that states the cause: a signal, an exit code or a timeout. The child ends with
its parent, is the first process that the kernel kills if memory runs out, and writes no core file.
"""

import contextlib
import ctypes
import logging
import math
import multiprocessing
import resource
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, TypeVar

from model_registry import stack_dump
from model_registry.errors import Refused, RegistryError

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1  # how late a cancelled or dead child is noticed
END_SECONDS = 5.0
KILL_SECONDS = 1.0  # for the end of a killed child; a driver of a GPU may hold it in the kernel for longer
PR_SET_PDEATHSIG = 1
MAX_LIKELY_KILLED = "1000"  # the highest oom_score_adj, see proc(5)

T = TypeVar("T")


class SandboxDied(Exception):
    """The child process died, or was killed because it did not answer in time. The message states the cause.

    Attributes:
        after: The seconds from the request to the death or the timeout.
        in_time: Whether the child died before the timeout. False if it was killed because of the timeout.
    """

    def __init__(self, message: str, after: float = 0.0, *, in_time: bool = True) -> None:
        super().__init__(message)
        self.after = after
        self.in_time = in_time


class Sandbox:
    """A child process that answers the requests of its parent.

    The child runs `target(pipe, *arguments)`, which should call `confine` and then `serve`. Only one thread at a time may call
    `request`; any thread may call `kill`. When `request` raises SandboxDied, the sandbox is closed.
    """

    def __init__(self, context: BaseContext, target: Callable[..., None], *arguments: Any) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = context.Process(target=target, args=(theirs, *arguments), daemon=True)  # type: ignore[attr-defined]
        try:
            self._process.start()
        except BaseException:
            self._pipe.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """The process id of the child."""
        return int(self._process.pid)

    def request(
        self, *question: Any, seconds: float = math.inf, waiting: Callable[[], None] = lambda: None, poll: float = POLL_SECONDS
    ) -> Any:
        """Send a request to the child and return its answer, or raise the error in the answer.

        Args:
            *question: The request.
            seconds: The time limit, without the time during which this machine was suspended.
            waiting: Called every `poll` seconds until the child answers. An error that it raises ends the wait, but not the
                child.
            poll: The seconds between two calls of `waiting`.

        Raises:
            SandboxDied: The child died, or did not answer in time and was killed.
        """
        began = time.monotonic()
        with contextlib.suppress(OSError):  # the child is dead, which is reported below
            self._pipe.send(question)
        polls = seconds / poll
        while not connection.wait([self._pipe, self._process.sentinel], poll):
            waiting()
            polls -= 1
            if polls <= 0:
                self._print_stacks(seconds)
                self.close()
                raise SandboxDied(f"did not answer within {seconds:g} s", time.monotonic() - began, in_time=False)
        try:
            succeeded, answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(END_SECONDS)
            code = self._process.exitcode
            self.close()
            raise SandboxDied(describe_end(code), time.monotonic() - began) from None
        if succeeded:
            return answer
        try:
            raise answer
        finally:
            del answer  # its traceback would keep this frame and the callers' frames, with the request, in memory

    def _print_stacks(self, seconds: float) -> None:
        """Make the child, which did not answer within `seconds`, print its stacks. Wait PRINT_SECONDS for the output."""
        stack_dump.request(self.pid)
        self._process.join(stack_dump.PRINT_SECONDS)
        log.warning("child process %d did not answer within %g s; its stacks are above; killing it", self.pid, seconds)

    def kill(self) -> None:
        """Kill the child. A thread that waits in `request` gets SandboxDied."""
        self._process.kill()

    def close(self) -> None:
        """Kill the child, wait up to KILL_SECONDS for its end, and close its pipe."""
        self._process.kill()
        self._process.join(KILL_SECONDS)
        if self._process.is_alive():
            log.warning("child process %d has not ended yet after SIGKILL", self.pid)
        self._pipe.close()


def describe_end(code: int | None) -> str:
    """Describe how a process ended, from its exit code or the negated number of the signal that killed it.

    `code` is None if the process closed its pipe but has not ended.
    """
    if code is None:
        return "closed its pipe"
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"


def confine() -> None:
    """Make this child process end with its parent, die first if memory runs out, and write no core file.

    Must be the first call in the child.
    """
    # SIGINT is ignored, so that Ctrl-C ends only the parent, which then ends the child.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        sys.exit()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stack_dump.print_on_signal()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # not on every kernel
        Path("/proc/self/oom_score_adj").write_text(MAX_LIKELY_KILLED)


def serve(pipe: connection.Connection, answer: Callable[..., Any], expected_errors: tuple[type[Exception], ...]) -> None:
    """Answer the requests of the parent process with `answer` until the parent closes the pipe.

    `Sandbox.request` raises one of `expected_errors` unchanged in the parent, and any other error as a RuntimeError.
    """
    while True:
        try:
            question = pipe.recv()
        except EOFError:
            return
        try:
            reply = True, answer(*question)
        except expected_errors as error:
            reply = False, error
        except Exception as error:
            log.exception("the child process could not answer: %s", question[0])
            reply = False, RuntimeError(f"{type(error).__name__}: {error}")
        pipe.send(reply)


def run_apart(work: Callable[..., T], *arguments: Any) -> T:
    """Run `work(*arguments)`, which loads a model, in a child process and return its result.

    A RegistryError or ImportError of `work` is raised unchanged. Raises Refused if the child dies.
    """
    alone = len(list(Path("/proc/self/task").iterdir())) == 1  # a process with threads must not fork
    sandbox = Sandbox(multiprocessing.get_context("fork" if alone else "spawn"), _serve_once)
    try:
        answer: T = sandbox.request(work, *arguments)
    except SandboxDied as error:
        raise Refused(
            f"a process {error} when it loaded the model or ran it", "a scorer would fail in the same way; correct the model"
        ) from None
    finally:
        sandbox.close()
    return answer


def _serve_once(pipe: connection.Connection) -> None:
    confine()
    serve(pipe, _call, (RegistryError, ImportError))


def _call(work: Callable[..., Any], *arguments: Any) -> Any:
    return work(*arguments)
