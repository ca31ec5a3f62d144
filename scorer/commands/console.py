"""`scorer console`: serve the web console."""

import logging
import signal
import sys
from typing import Annotated

import typer

from publisher.runtime import logs
from publisher.runtime.command_line import Config, Set, err_console
from scorer.console.serve import serve
from scorer.settings import load


def console(
    path: Config,
    flags: Set = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The address to listen on. Port 0 takes a free port.")
    ] = "127.0.0.1:9480",
    allow_actions: Annotated[
        bool,
        typer.Option(
            "--allow-actions",
            help="Allow promotions, rollbacks and replays from the browser. Without it the console is read-only.",
        ),
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A host name that requests may use, besides loopback. Repeatable.", show_default=False),
    ] = None,
    user_header: Annotated[
        str | None,
        typer.Option(help="The request header in which an authenticating proxy gives the user's name.", show_default=False),
    ] = None,
) -> None:
    """Serve a web console with rollouts, scores, flow, regions, dead letters, history and training. It has no login."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    settings = load(path, flags or []).settings
    logs.configure({"console": settings.name}, "warning", settings.log.format)
    logging.getLogger("librdkafka").setLevel(logging.CRITICAL)  # one line per attempt; the pages show the error once
    serve(
        settings,
        path,
        listen,
        lambda address: err_console.print(f"the console is at {address}", markup=False),
        allow_actions=allow_actions,
        allow_hosts=allow_host or (),
        user_header=user_header,
    )
