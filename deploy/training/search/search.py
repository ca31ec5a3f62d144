"""Search for parameters: draw trials and train them rung by rung. An interrupted search continues from its stored results."""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from model_registry import atomic_files
from model_registry.package.signature import Signature
from publisher.errors import REFUSED, Fatal
from training.recipes import BuiltIn, Params, Recipe, contract
from training.recipes.contract import Goal, Resources
from training.recipes.own import Own
from training.search import halving
from training.search.halving import Best, FailedTrial, Rung, Searched, Tried
from training.search.workers import Bench, Task, TrialEvents, TrialResult, Workers
from training.settings import SearchedParameter, TrainingSettings
from training.snapshot.rows import LabelledRows
from training.snapshot.target import Target
from training.validation_gate import metrics

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Reports the number of trained trees or epochs and the total."""
CODE = "recipe"
"""The folder of the copied code of a command, beside the folders of the search and of the final training."""


class Stored(msgspec.Struct, frozen=True):
    """The stored result of a trial. `key` is a digest of the inputs of the result: rows, parameters, code and seed."""

    key: str
    result: TrialResult


@dataclass(frozen=True, slots=True)
class Judgement:
    """The metric by which trials are compared, and whether a larger or a smaller value is better."""

    metric: str
    goal: Goal


def judgement(settings: TrainingSettings, target: Target) -> Judgement:
    """Return the metric and the goal of a search: those in the settings, or the defaults for the target."""
    metric = settings.search.metric or metrics.default_metric(target)
    return Judgement(metric, settings.search.goal or metrics.goal(metric))


def search(
    training: LabelledRows,
    validation: LabelledRows,
    signature: Signature,
    settings: TrainingSettings,
    recipe: Recipe,
    folder: Path,
    progress: Progress,
    events: TrialEvents,
) -> Searched:
    """Find the best parameters and budget by the metric on the validation part.

    Trial 0 of a built-in recipe has its default parameters, and each further trial has random ones; parameters in the settings
    are the same in all trials. `settings.workers` trials run in parallel. Rows, checkpoints and results are stored in `folder`.
    With a built-in recipe, the same arguments give the same result for any number of workers and interruptions.

    Raises:
        Fatal: Exit code 2 if the recipe does not support the signature or its parameters; 3 if all trials failed, or if the
            disk is full.
    """
    target = training.target
    recipe.check(signature, target)
    trials = drawn(recipe, settings)
    judged = judgement(settings, target)
    parts = ((training, contract.TRAINING), (validation, contract.VALIDATION))
    try:
        digests = [contract.write_rows(rows, signature, folder / contract.ROWS / name) for rows, name in parts]
        own_code = sorted(_code(folder.parent / CODE).items()) if isinstance(recipe, Own) else []
        inputs = [digests, signature.to_json(), recipe.name, settings.seed, judged.metric, own_code, settings.recipe.command]
        key = hashlib.sha256(msgspec.json.encode([*inputs, sorted(settings.recipe.env.items())])).hexdigest()
        bench = bench_of(settings, recipe, signature, target, folder)
        with Workers(bench, _parallel(settings), events) as workers:
            running = _Search(folder, key, workers, trials, judged.goal, progress)
            rungs = running.rungs(settings)
    except OSError as error:
        raise Fatal(
            f"{error.filename or folder} cannot be written: {error.strerror}",
            "check the disk space and the permissions, and run again",
            REFUSED,
        ) from None
    trial, budget, score = halving.best(rungs, judged.goal)
    budgets = settings.search.rungs
    counts = [len(rung.trials) for rung in rungs]
    return Searched(
        judged.metric,
        tuple(rungs),
        tuple(Tried(trial, parameters) for trial, parameters in trials.items()),
        Best(trial, trials[trial], budget, score),
        spent=halving.units(budgets[: len(counts)], counts),
        unstopped=len(trials) * budgets[-1],
        goal=judged.goal,
        failures=tuple(running.failures),
    )


def bench_of(
    settings: TrainingSettings, recipe: Recipe, signature: Signature, target: Target, folder: Path, *, final: bool = False
) -> Bench:
    """Return the inputs that the trials of a search, or the final training, share. `folder` is the folder of the step."""
    judged = judgement(settings, target)
    command = isinstance(recipe, Own)
    one = Resources(1, min(settings.gpus, 1) if command else 0)
    return Bench(
        rows=folder / contract.ROWS,
        signature=signature,
        target=target,
        recipe=settings.recipe if command else _built_in(recipe),
        code=folder.parent / CODE,
        seed=settings.seed,
        metric=judged.metric,
        goal=judged.goal,
        resources=Resources(settings.workers, settings.gpus) if final else one,
        launched=final and settings.recipe.launcher is not None,
        final=final,
    )


def _built_in(recipe: Any) -> BuiltIn:
    built_in: BuiltIn = recipe
    return built_in


def _parallel(settings: TrainingSettings) -> int:
    """Return the number of trials that run at a time: `workers`, and for a command on GPUs at most one trial per GPU."""
    if settings.recipe.command and settings.gpus:
        return min(settings.workers, settings.gpus)
    return settings.workers


def _code(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def drawn(recipe: Recipe, settings: TrainingSettings) -> dict[int, Params]:
    """Return the parameters of every trial by its number.

    Parameters in the settings have the same values in every trial. Parameters in `search.space` are drawn at random. Without a
    search space, a built-in recipe uses its defaults in trial 0 and draws random values for the other trials.

    Raises Fatal (exit code 2) if a parameter is unknown or invalid.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(settings.seed))
    fixed = dict(settings.parameters)
    space = settings.search.space
    drawn_parameters: dict[int, Params] = {}
    for trial in range(settings.search.trials):
        if space:
            suggested: Params = suggest(study.ask(), space, fixed)
        else:
            suggested = recipe.suggest(study.ask()) if trial else {}
        drawn_parameters[trial] = recipe.parameters({**suggested, **fixed})
    return drawn_parameters


def suggest(trial: Any, space: Mapping[str, SearchedParameter], fixed: Params) -> dict[str, int | float | str]:
    """Draw the parameters of a search space. `trial` is an `optuna.Trial`; parameters in `fixed` are not drawn.

    A parameter with a condition `when` is drawn only if each parameter in `when` already has one of the values listed there.
    Returns the drawn and the fixed values.
    """
    values: dict[str, int | float | str] = dict(fixed)
    for name, parameter in space.items():
        active = all(other in values and values[other] in allowed for other, allowed in parameter.when.items())
        if name in fixed or not active:
            continue
        if parameter.type == "categorical":
            values[name] = trial.suggest_categorical(name, parameter.values)
        elif parameter.type == "int":
            values[name] = trial.suggest_int(name, parameter.low, parameter.high, log=parameter.log)
        else:
            values[name] = trial.suggest_float(name, parameter.low, parameter.high, log=parameter.log)
    return values


class _Search:
    """Trains and scores trials, except those with a stored result in the folder."""

    def __init__(
        self, folder: Path, key: str, workers: Workers, trials: Mapping[int, Params], goal: Goal, progress: Progress
    ) -> None:
        self._folder = folder
        self._key = key
        self._workers = workers
        self._trials = trials
        self._goal = goal
        self._progress = progress
        self.failures: list[FailedTrial] = []

    def rungs(self, settings: TrainingSettings) -> list[Rung]:
        """Train all rungs. If all trials of a rung fail, the search ends with the previous rung.

        Raises Fatal (exit code 3) if all trials of the first rung failed.
        """
        budgets = settings.search.rungs
        counts = halving.sizes(len(self._trials), len(budgets), settings.search.reduction)
        total = halving.units(budgets, counts)
        done = 0
        reached = 0
        going = tuple(self._trials)
        completed = list[Rung]()
        for budget, keep in zip(budgets, [*counts[1:], 1], strict=True):
            results: dict[int, TrialResult] = {}
            for trial, result in self._results(going, budget):
                results[trial] = result
                done += budget - reached
                self._progress(done, total)
            self._note_failures(results, budget)
            scores = {trial: result.score for trial, result in results.items() if result.score is not None}
            if not scores and completed:
                break
            if not scores:
                raise self._all_failed(budget)
            stops = {trial: result.reached for trial, result in results.items()}
            completed.append(halving.rung(budget, scores, keep, self._goal, stops))
            going = completed[-1].kept
            reached = budget
        return completed

    def _note_failures(self, results: Mapping[int, TrialResult], budget: int) -> None:
        for trial, result in sorted(results.items()):
            if result.failure:
                log.warning("trial %d failed at budget %d: %s", trial, budget, result.failure)
                self.failures.append(FailedTrial(trial, budget, result.failure, result.log))

    def _all_failed(self, budget: int) -> Fatal:
        """Return the error of a search in which all trials failed.

        The stored results and the metrics of these trials are removed, so that the next run trains them again.
        """
        for failure in self.failures:
            self._path(failure.trial, budget).unlink(missing_ok=True)
            contract.remove_metrics(self._trial(failure.trial))
        reasons = "\n".join(f"  trial {failure.trial}: {failure.reason}" for failure in self.failures[:10])
        last = self.failures[-1]
        tail = f"\nthe log of trial {last.trial} ends with:\n{last.log}" if last.log else ""
        message = f"all {len(self.failures)} trials failed before the budget {budget}:\n{reasons}{tail}"
        return Fatal(message, f"the logs are in {self._folder / 'trials'}; correct the recipe, and run again", REFUSED)

    def _results(self, trials: tuple[int, ...], budget: int) -> Iterator[tuple[int, TrialResult]]:
        """Yield each trial with its result at this budget.

        Trials with a stored result come first. Each other trial is yielded when its training ends.
        """
        stored_results = {trial: self._stored_result(trial, budget) for trial in trials}
        for trial, result in stored_results.items():
            if result is not None:
                yield trial, result
        tasks = [
            Task(trial, self._trials[trial], budget, self._trial(trial))
            for trial in sorted(trials)
            if stored_results[trial] is None
        ]
        for task, result in self._workers.results(tasks):
            path = self._path(task.trial, budget)
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_files.replace(path, [msgspec.json.encode(Stored(self._key_of(task.trial), result))])
            yield task.trial, result

    def _stored_result(self, trial: int, budget: int) -> TrialResult | None:
        try:
            stored = msgspec.json.decode(self._path(trial, budget).read_bytes(), type=Stored)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        return stored.result if stored.key == self._key_of(trial) else None

    def _trial(self, trial: int) -> Path:
        return self._folder / "trials" / f"{trial:04}"

    def _path(self, trial: int, budget: int) -> Path:
        return self._folder / "scores" / f"{budget}" / f"{trial:04}.json"

    def _key_of(self, trial: int) -> str:
        encoded = msgspec.json.encode(sorted(self._trials[trial].items()))
        return hashlib.sha256(self._key.encode() + encoded).hexdigest()
