"""`scorer run`: scores events until SIGTERM."""

import os
from typing import Annotated

import typer

from publisher.process.command_line import Config, LogLevel, Set


def run(
    path: Config,
    flags: Set = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes in the consumer group; default: as many as cores are allowed.", min=1)
    ] = None,
    log_level: LogLevel = "INFO",
) -> None:
    """Score events until SIGTERM."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is imported: threads that no scorer would use
    from publisher.process import logs
    from scorer.process import cores, service, supervisor
    from scorer.settings import load

    settings = load(path, flags or []).settings
    logs.configure({"scorer": settings.owner}, log_level.upper())
    supervisor.run(settings, workers or cores.allowed(), service.run, log_level.upper())
