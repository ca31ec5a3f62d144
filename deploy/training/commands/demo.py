"""The command `demo`: the learning loop with flights as example data, from labelled events to a version in a running scorer."""

import signal
import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from publisher.errors import FINDING, USAGE, Fatal
from publisher.runtime.command_line import Json, print_data


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave all processes running, and print commands to try.")] = False,
    as_json: Json = False,
) -> None:
    """Train a version on example data (flights) and promote it, on a Kafka broker that the demo starts.

    The demo kills the training run during its search for parameters, and starts it again; the run continues where it stopped. A
    running scorer then uses the new version. Exit code 1 if a check of the demo fails, for example if an event was lost or
    scored twice.
    """
    from scorer.demo.view import DemoView
    from training.demo import run

    if find_spec("jgo") is None:
        raise Fatal("the extra `demo` is not installed", "pip install -e '.[cpu,demo,training]'", USAGE)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: stop all started processes
    with DemoView() as view:
        summary = run.demo(keep, view)
    print_data(as_json, summary.to_dict(), summary.table)
    if not summary.clean:
        raise typer.Exit(FINDING)
