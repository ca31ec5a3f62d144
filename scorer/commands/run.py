"""`scorer run`: scores events until SIGTERM, for those who read scores or, as a shadow, for those who compare versions."""

import os
from functools import partial
from typing import Annotated

import typer

from publisher.errors import USAGE, Fatal
from publisher.runtime.command_line import Config, LogLevel, Set


def run(
    path: Config,
    flags: Set = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes in the consumer group; default: one for each allowed core, or for each GPU used.", min=1),
    ] = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Score unseen, by the version that does not answer, to <output>.shadow.")
    ] = False,
    share: Annotated[
        str | None, typer.Option(metavar="SHARE", help="With --shadow: of so many of the keys (20%); default: shadow.share.")
    ] = None,
    log_level: LogLevel = "INFO",
) -> None:
    """Score events until SIGTERM. With --shadow nobody is answered: a group of its own compares versions."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is imported: threads that no scorer would use
    from publisher.runtime import logs
    from scorer.service import cpu_limit, gpu_assignment, shadow_worker_main, supervisor, worker_main
    from scorer.settings import load
    from scorer.settings.shadow_worker import ShadowWorkerSettings

    if share is not None and not shadow:
        raise Fatal(f"--share {share} is a share of what a shadow scores", "say --shadow, or leave it out", USAGE)
    sampled = [] if share is None else [f"shadow.share={share.strip().removesuffix('%').rstrip()}"]
    settings = load(path, [*(flags or []), *sampled]).settings
    if shadow:
        settings = ShadowWorkerSettings.from_scorer(settings)
    logs.configure({"scorer": settings.owner}, log_level.upper())
    gpus = gpu_assignment.of_workers(settings.model)
    default = cpu_limit.allowed() if settings.model.device == "cpu" else len(gpus) or 1
    count = workers or default
    work = partial(shadow_worker_main.run if shadow else worker_main.run, workers=count)
    supervisor.run(settings, count, work, log_level.upper(), gpus)
