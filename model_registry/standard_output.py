"""Handles two conditions of a command's stdout: the reader closes the pipe, or the encoding is not UTF-8."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator

import typer

INTERRUPTED = 130


@contextlib.contextmanager
def ended_by_closed_pipe() -> Iterator[None]:
    """End the command with the exit code of an interruption, without a message, if the reader of stdout closes the pipe.

    The reader is another program, as in `model-registry list REPO | head`.
    """
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # buffered text would fail once more at the end of the process
        raise typer.Exit(INTERRUPTED) from None


def accept_any_text() -> None:
    """Make stdout escape the characters that are not in its encoding, as stderr does, instead of raising an error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
