"""`scorer run`: score events until SIGTERM, as scorers or as a shadow."""

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
        typer.Option(help="Worker processes. Default: one per available CPU core, or one per GPU.", min=1),
    ] = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Score with the candidate as a shadow, and write to <output>.shadow.")
    ] = False,
    share: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="With --shadow: the share of the keys to score (20%). Default: shadow.share."),
    ] = None,
    log_level: LogLevel = None,
) -> None:
    """Score events until SIGTERM. With --shadow a separate group scores with the candidate, for comparison only."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read at the import of numpy, whose threads a scorer does not use
    from publisher.runtime import logs
    from publisher.runtime.log_settings import flags_with_level
    from scorer.service import cpu_limit, gpu_assignment, supervisor, worker_main
    from scorer.settings import load
    from scorer.settings.shadow_worker import ShadowWorkerSettings

    logs.configure({})  # an error of the configuration is also a log line
    if share is not None and not shadow:
        raise Fatal(f"--share {share} needs --shadow", "add --shadow, or remove --share", USAGE)
    sampled = [] if share is None else [f"shadow.share={share.strip().removesuffix('%').rstrip()}"]
    settings = load(path, [*flags_with_level(flags, log_level), *sampled]).settings
    if shadow:
        settings = ShadowWorkerSettings.from_scorer(settings)
    logs.configure({"scorer": settings.owner}, settings.log.level, settings.log.format)
    gpus = gpu_assignment.visible_devices(settings.model)
    default = cpu_limit.count_usable_cores() if settings.model.device == "cpu" else len(gpus) or 1
    count = workers or default
    work = partial(worker_main.run, workers=count)
    supervisor.run(settings, count, work, gpus)
