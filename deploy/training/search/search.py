"""Search for parameters: draw trials and train them rung by rung. An interrupted search continues from its stored scores."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from model_registry import atomic_files
from model_registry.package.signature import Signature
from publisher.errors import REFUSED, Fatal
from training.recipes import Params, Recipe
from training.runs_topic.run_events import NoEvents, RunEvents
from training.search import halving, shared_rows
from training.search.halving import Best, Rung, Searched, Tried
from training.search.workers import Bench, Task, Workers
from training.settings import TrainingSettings
from training.snapshot.rows import LabelledRows

METRIC = "auc"
Progress = Callable[[int, int], None]
"""Reports the number of trained trees or epochs and the total."""


class Kept(msgspec.Struct, frozen=True):
    """A stored score of a trial. `key` is a digest of the inputs of the score: rows, parameters and seed."""

    key: str
    score: float


def search(
    training: LabelledRows,
    validation: LabelledRows,
    signature: Signature,
    settings: TrainingSettings,
    recipe: Recipe,
    folder: Path,
    progress: Progress = lambda _done, _of: None,
    events: RunEvents | None = None,
) -> Searched:
    """Find the best parameters and budget by the AUC on the validation part.

    Trial 0 has the recipe's default parameters, and each further trial has random ones; parameters in the settings are the same
    in all trials. `settings.workers` trials run in parallel. Rows, checkpoints and scores are stored in `folder`. The same
    arguments give the same result for any number of workers and interruptions. Raises Fatal.
    """
    recipe.check(signature)
    trials = drawn(recipe, settings)
    try:
        digests = [
            shared_rows.write(rows, folder / name) for rows, name in ((training, "training"), (validation, "validation"))
        ]
        bench = Bench(folder / "training", folder / "validation", signature, recipe, settings.seed)
        key = hashlib.sha256(msgspec.json.encode([digests, signature.to_json(), recipe.name, settings.seed])).hexdigest()
        with Workers(bench, settings.workers) as workers:
            rungs = _Search(folder, key, workers, trials, progress, events or NoEvents()).rungs(settings)
    except OSError as error:
        raise Fatal(
            f"{error.filename or folder} cannot be written: {error.strerror}",
            "check the disk space and the permissions, and run again",
            REFUSED,
        ) from None
    trial, budget, score = halving.best(rungs)
    budgets = settings.search.rungs
    counts = [len(rung.trials) for rung in rungs]
    return Searched(
        METRIC,
        tuple(rungs),
        tuple(Tried(trial, parameters) for trial, parameters in trials.items()),
        Best(trial, trials[trial], budget, score),
        spent=halving.units(budgets, counts),
        unstopped=len(trials) * budgets[-1],
    )


def drawn(recipe: Recipe, settings: TrainingSettings) -> dict[int, Params]:
    """Return the parameters of every trial by its number: defaults for trial 0, random values for the others.

    Raises Fatal (exit code 2).
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(settings.seed))
    drawn_parameters = {0: recipe.parameters(settings.parameters)}
    for trial in range(1, settings.search.trials):
        drawn_parameters[trial] = recipe.parameters({**recipe.suggest(study.ask()), **settings.parameters})
    return drawn_parameters


class _Search:
    """Trains and scores trials, except those with a stored score in the folder."""

    def __init__(
        self,
        folder: Path,
        key: str,
        workers: Workers,
        trials: Mapping[int, Params],
        progress: Progress,
        events: RunEvents,
    ) -> None:
        self._events = events
        self._started: dict[int, float] = {}
        self._folder = folder
        self._key = key
        self._workers = workers
        self._trials = trials
        self._progress = progress

    def rungs(self, settings: TrainingSettings) -> list[Rung]:
        budgets = settings.search.rungs
        counts = halving.sizes(len(self._trials), len(budgets), settings.search.reduction)
        total = halving.units(budgets, counts)
        done = 0
        reached = 0
        going = tuple(self._trials)
        completed = list[Rung]()
        for budget, keep in zip(budgets, [*counts[1:], 1], strict=True):
            scores: dict[int, float] = {}
            for trial, score in self._scores(going, budget):
                scores[trial] = score
                self._events.metrics(trial, budget, {METRIC: score})
                done += budget - reached
                self._progress(done, total)
            completed.append(halving.rung(budget, scores, keep))
            going = completed[-1].kept
            reached = budget
        return completed

    def _scores(self, trials: tuple[int, ...], budget: int) -> Iterator[tuple[int, float]]:
        """Yield each trial with its score at this budget.

        Trials with a stored score come first. Each other trial is yielded when its training ends.
        """
        stored_scores = {trial: self._stored_score(trial, budget) for trial in trials}
        for trial, score in stored_scores.items():
            if score is not None:
                yield trial, score
        tasks = [
            Task(trial, self._trials[trial], budget, self._folder / "trials" / f"{trial:04}")
            for trial in sorted(trials)
            if stored_scores[trial] is None
        ]
        for task, score in self._workers.scores(tasks, self._start):
            path = self._path(task.trial, budget)
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_files.replace(path, [msgspec.json.encode(Kept(self._key_of(task.trial), score))])
            yield task.trial, score
            self._events.trial_ended(task.trial, budget, time.monotonic() - self._started[task.trial], "", "")

    def _start(self, task: Task) -> None:
        self._started[task.trial] = time.monotonic()
        self._events.trial_started(task.trial, task.budget, task.parameters)

    def _stored_score(self, trial: int, budget: int) -> float | None:
        try:
            stored = msgspec.json.decode(self._path(trial, budget).read_bytes(), type=Kept)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        return stored.score if stored.key == self._key_of(trial) else None

    def _path(self, trial: int, budget: int) -> Path:
        return self._folder / "scores" / f"{budget}" / f"{trial:04}.json"

    def _key_of(self, trial: int) -> str:
        encoded = msgspec.json.encode(sorted(self._trials[trial].items()))
        return hashlib.sha256(self._key.encode() + encoded).hexdigest()
