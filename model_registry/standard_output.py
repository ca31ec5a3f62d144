"""stdout of the commands: a reader that closes the pipe, and an encoding that is not UTF-8."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator

import typer

INTERRUPTED = 130


@contextlib.contextmanager
def ended_by_closed_pipe() -> Iterator[None]:
    """End a command without an error message, with the code of an interruption, if its reader closes the pipe (`| head`)."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # buffered text would fail once more at the end of the process
        raise typer.Exit(INTERRUPTED) from None


def accept_any_text() -> None:
    """Escape the characters that the encoding of stdout does not have, as Python does on stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
