"""The rows of a run on the topic of runs, to score them again: from the run's folder, or from the snapshot in the registry."""

from publisher.errors import REFUSED, Fatal
from scorer.console.training.run_history import RecordedRun
from scorer.settings import Settings
from training.pipeline import pipeline, reproduction
from training.pipeline.journal import Journal
from training.pipeline.run import Progress, Run
from training.pipeline.run_dirs import STEPS, alone, runs
from training.pipeline.step_results import JoinResult
from training.settings import TrainingSettings


def open_rows(training: TrainingSettings, settings: Settings, recorded: RecordedRun, progress: Progress) -> Run:
    """Return a run whose step `join` is complete, with the rows of the recorded run.

    If the folder of the run is on this host, the rows are read from it. Otherwise the snapshot is fetched from the registry.

    Raises:
        Fatal: The folder of the run is not on this host, and the run pushed no version.
        RegistryError: The registry has no snapshot or no signed provenance of the version, or is unreachable.
    """
    for folder in reversed(runs(training.folder)):
        joined = Journal(folder / STEPS).result("join", JoinResult)
        if joined is not None and joined.run == recorded.id:
            return Run(training, settings, folder, progress)
    if not recorded.digest:
        hint = "compare with --run on a run whose version was pushed, or on the host of the run"
        raise Fatal(f"the run {recorded.key} has no folder in {training.folder}, and pushed no version", hint, REFUSED)
    with alone(training.folder):
        run, _ = reproduction.begin(training, settings, recorded.digest, progress)
        pipeline.follow(run, "join", lambda _step, _seconds: None)
    return run
