"""`scorer demo`: the product in two minutes. See the modules beside this one."""

import signal
import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from model_registry.extras import install_command
from publisher.errors import FINDING, USAGE, Fatal
from publisher.runtime.command_line import Json, print_data


def demo(
    events: Annotated[int, typer.Option(help="Flights to replay, at least.", min=100)] = 50_000,
    rate: Annotated[float, typer.Option(help="Flights a second.", min=1)] = 2_000.0,
    kill: Annotated[bool, typer.Option("--kill/--no-kill", help="Kill a scorer at three quarters.")] = True,
    bootstrap_servers: Annotated[str | None, typer.Option(help="A broker of yours instead of the embedded one.")] = None,
    registry: Annotated[str | None, typer.Option(help="HOST:PORT of an OCI registry of yours instead of a folder.")] = None,
    plain_http: Annotated[bool, typer.Option("--plain-http", help="That registry speaks HTTP without TLS.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running, and say how to go on playing.")] = False,
    copied: Annotated[
        bool, typer.Option("--regions", help="Two regions, and a publisher between them, which is killed instead.")
    ] = False,
    rollouts: Annotated[
        bool, typer.Option("--rollout", help="A good candidate goes through a plan by itself, and a bad one comes back.")
    ] = False,
    with_console: Annotated[bool, typer.Option("--console", help="Show it all in a browser too; prints the address.")] = False,
    only_kafka: Annotated[
        int, typer.Option(metavar="PORT", help="Kafka alone, on 127.0.0.1:PORT (say 9092), until Ctrl-C.", min=0, max=65_535)
    ] = 0,
    as_json: Json = False,
) -> None:
    """Score real flights on a real broker: a live swap, a kill, and the count of lost and doubled events."""
    from scorer.demo import regions, run, sandbox
    from scorer.demo import rollouts as acting
    from scorer.demo.options import DemoOptions
    from scorer.demo.view import DemoView

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: what was started is stopped
    if only_kafka:
        with DemoView() as view:
            sandbox.kafka(only_kafka, view)
    if copied and bootstrap_servers:
        raise typer.BadParameter("each region has an embedded cluster: leave out --bootstrap-servers", param_hint="--regions")
    if copied and rollouts:
        raise typer.BadParameter("one at a time: leave out --regions, or --rollout", param_hint="--rollout")
    if with_console and find_spec("uvicorn") is None:
        raise Fatal("--console: the extra `console` is not installed", install_command("cpu", "demo", "console"), USAGE)
    options = DemoOptions(events, rate, kill, keep, bootstrap_servers, registry, plain_http, copied, with_console, rollouts)
    with DemoView() as view:
        found = regions.demo(options, view) if copied else acting.demo(options, view) if rollouts else run.demo(options, view)
    print_data(as_json, found.to_dict(), found.table)
    if not found.clean:
        raise typer.Exit(FINDING)
