"""Prints the stacks of a process that hangs, when another process requests it by a signal, or before the process ends."""

# faulthandler prints in C, thread by thread, and does not need the interpreter lock. It therefore also prints the stack of a
# thread that holds the lock while it calls a library. Stacks of native threads, such as those of librdkafka, are not printed.
# The module depends on the standard library alone, and ends no process.

import contextlib
import faulthandler
import os
import signal

STACKS_SIGNAL = signal.SIGUSR1  # neither the product nor its libraries use it
PRINT_SECONDS = 0.5  # from the signal to the kill; a busy machine prints a hundred threads within milliseconds
STANDARD_ERROR = 2


def print_on_signal() -> None:
    """Print the stacks of all Python threads to stderr at each SIGUSR1. Call this at the start of a process."""
    # A forked process inherits the signal handler; a process that executes another program does not. Without this call, SIGUSR1
    # ends a process.
    faulthandler.register(STACKS_SIGNAL, file=STANDARD_ERROR, all_threads=True)


def request(pid: int) -> None:
    """Signal the process `pid` to print its stacks. The call does not wait for the output.

    The process must have called `print_on_signal`; otherwise the signal ends the process. Nothing happens if the process has
    already ended.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, STACKS_SIGNAL)


def print_own() -> None:
    """Print the stacks of all Python threads of this process to stderr."""
    faulthandler.dump_traceback(file=STANDARD_ERROR, all_threads=True)
