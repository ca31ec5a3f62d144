"""`scorer console`: shows in a browser what the bus and the registry tell."""

import logging
import signal
import sys
from typing import Annotated

import typer

from publisher.runtime import logs
from publisher.runtime.command_line import Config, Set, talk
from scorer.console.serve import serve
from scorer.settings import load


def console(
    path: Config,
    flags: Set = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to serve; port 0 takes a free one.")
    ] = "127.0.0.1:9480",
    allow_actions: Annotated[
        bool, typer.Option("--allow-actions", help="Promotions, rollbacks and replays from the browser. Without: read-only.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A host name that browsers may ask for it by, beside loopback's; repeatable.", show_default=False),
    ] = None,
    user_header: Annotated[
        str | None, typer.Option(help="The header in which a proxy that authenticates names who acts.", show_default=False)
    ] = None,
) -> None:
    """Show rollout, scores, flow, regions, dead letters, history and training in a browser. It has no login of its own."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    settings = load(path, flags or []).settings
    logs.configure({"console": settings.name}, "WARNING")
    logging.getLogger("librdkafka").setLevel(logging.CRITICAL)  # a line for each attempt; the pages say it once
    serve(
        settings, path, listen, lambda address: talk.print(f"the console is at {address}", markup=False),
        allow_actions=allow_actions, allow_hosts=allow_host or (), user_header=user_header,
    )  # fmt: skip
