"""`scorer demo`: a demonstration of the product in two minutes."""

import signal
import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from model_registry.extras import install_command
from publisher.errors import FINDING, USAGE, Fatal
from publisher.runtime.command_line import Json, print_data


def demo(
    events: Annotated[int, typer.Option(help="The minimum number of flights to replay.", min=100)] = 50_000,
    rate: Annotated[float, typer.Option(help="The number of flights per second.", min=1)] = 2_000.0,
    kill: Annotated[bool, typer.Option("--kill/--no-kill", help="Kill a scorer after three quarters of the flights.")] = True,
    bootstrap_servers: Annotated[str | None, typer.Option(help="Use your broker instead of the embedded one.")] = None,
    registry: Annotated[str | None, typer.Option(help="HOST:PORT of your OCI registry, instead of a folder.")] = None,
    plain_http: Annotated[bool, typer.Option("--plain-http", help="Use HTTP without TLS for --registry.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running, and print commands to try next.")] = False,
    copied: Annotated[
        bool,
        typer.Option(
            "--regions", help="Copy the scores to a second region with a publisher, and kill the publisher instead of a scorer."
        ),
    ] = False,
    rollouts: Annotated[
        bool, typer.Option("--rollout", help="Roll out a good and a bad candidate by plans; the bad one is rolled back.")
    ] = False,
    tables: Annotated[
        bool, typer.Option("--tables", help="Promote a version that joins each flight with the weather, which is a table.")
    ] = False,
    with_console: Annotated[bool, typer.Option("--console", help="Also serve the web console, and print its address.")] = False,
    only_kafka: Annotated[
        int,
        typer.Option(metavar="PORT", help="Run only Kafka on 127.0.0.1:PORT (such as 9092), until Ctrl-C.", min=0, max=65_535),
    ] = 0,
    as_json: Json = False,
) -> None:
    """Score real flights on a real broker, with a version change and a kill, and count lost and duplicated events."""
    from scorer.demo import regions, run, sandbox, weather_tables
    from scorer.demo import rollouts as rollout_demo
    from scorer.demo.options import DemoOptions
    from scorer.demo.summary import DemoSummary
    from scorer.demo.view import DemoView

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # like Ctrl-C: all started processes are stopped
    if only_kafka:
        with DemoView() as view:
            sandbox.kafka(only_kafka, view)
    if copied and bootstrap_servers:
        raise typer.BadParameter(
            "with --regions each region has an embedded cluster; remove --bootstrap-servers", param_hint="--regions"
        )
    if copied + rollouts + tables > 1:
        raise typer.BadParameter(
            "use only one of --regions, --rollout and --tables", param_hint="--tables" if tables else "--rollout"
        )
    if with_console and find_spec("uvicorn") is None:
        raise Fatal("--console: the extra `console` is not installed", install_command("cpu", "demo", "console"), USAGE)
    options = DemoOptions(
        events, rate, kill, keep, bootstrap_servers, registry, plain_http, copied, with_console, rollouts, tables
    )
    with DemoView() as view:
        if copied:
            summary: regions.RegionsSummary | rollout_demo.RolloutsSummary | weather_tables.TablesSummary | DemoSummary = (
                regions.demo(options, view)
            )
        elif rollouts:
            summary = rollout_demo.demo(options, view)
        elif tables:
            summary = weather_tables.demo(options, view)
        else:
            summary = run.demo(options, view)
    print_data(as_json, summary.to_dict(), summary.table)
    if not summary.clean:
        raise typer.Exit(FINDING)
