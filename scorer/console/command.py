"""The command `scorer console`."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from publisher.process.command_line import talk

LISTEN = "127.0.0.1:9480"


def console(
    config: Annotated[Path, typer.Argument(help="The configuration, a YAML file.", show_default=False)],
    settings: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: --set model.tag=prod.us")] = None,
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
    """Show rollout, scores, flow, regions, dead letters and history in a browser. It has no login of its own."""
    import logging

    from publisher.process import logs
    from scorer.console.serve import Serving, serve
    from scorer.settings import load

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    loaded = load(config, settings or [])
    logs.configure({"console": loaded.settings.name}, "WARNING")
    logging.getLogger("librdkafka").setLevel(logging.CRITICAL)  # a line for each attempt; the pages say it once
    serving = Serving(listen, allow_actions, tuple(allow_host or ()), user_header)
    serve(loaded.settings, config, serving, lambda address: talk.print(f"the console is at {address}", markup=False))
