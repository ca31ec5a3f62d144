"""The gate on real flights for more than two classes, and for numbers: the arrival delay in three classes, and in minutes.

LightGBM learns from January to August; September and October are the hold-out. Challengers that differ by their seed alone
must not be called better; those that are made worse must be refused.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from tests.benchmarks.findings import Finding
from tests.benchmarks.training.gate import (
    BETTER,
    CATEGORIES,
    CHALLENGERS,
    COVERAGE,
    DAY_MS,
    FIELDS,
    NOT_WORSE,
    NUMBERS,
    PARAMETERS,
    PLANTED,
    SEED,
    TREES,
    expected,
    failed,
)
from training.demo_dataset import source_data
from training.demo_dataset.features import event
from training.settings import GateSection
from training.snapshot.rows import LabelledRows, Places
from training.snapshot.target import Target
from training.validation_gate.comparison import GateComparison
from training.validation_gate.inputs import VerdictEvidence, Version
from training.validation_gate.metrics import DEFAULT_METRICS, ModelAnswers, constant, decide, evaluate
from training.validation_gate.verdict import judge

Scores = NDArray[np.float64]
NAMES = ("on time", "late", "very late")
EDGES = (15, 60)  # minutes of delay from which on a flight is late, and very late
TARGETS = {"classes": Target("classes", NAMES), "regression": Target("regression")}
OBJECTIVES: Mapping[str, Mapping[str, Any]] = {
    "classes": {"objective": "multiclass", "num_class": len(NAMES)},
    "regression": {"objective": "regression"},
}
LOSSES: Mapping[str, tuple[float, ...]] = {"classes": (0.004, 0.008, 0.016), "regression": (0.01, 0.02, 0.04)}
"""The planted losses: of log loss, or as a share of the champion's RMSE."""
CHAMPIONS = 2
HELD_FROM = int(datetime(2013, 9, 1, tzinfo=UTC).timestamp() * 1_000)


@dataclass(frozen=True)
class Held:
    """The hold-out, and the scores of models that differ by their seed alone."""

    rows: LabelledRows
    slices: dict[str, NDArray[np.str_]]
    scores: list[Scores]

    def judged(self, champion: Scores | None, challenger: Scores, gate: GateSection) -> GateComparison:
        target = self.rows.target

        def version(name: str, scores: Scores) -> Version:
            return Version(name, "", ModelAnswers(scores, decide(target, scores)))

        evidence = VerdictEvidence(
            run="proof",
            rows=self.rows,
            mature_times=self.rows.places.time_ms,
            challenger=version("challenger", challenger),
            champion=None if champion is None else version("champion", champion),
            leaked=None if champion is None else 0,
            slices=self.slices,
        )
        return judge(evidence, gate, COVERAGE, SEED)

    def metric(self, scores: Scores) -> float:
        target = self.rows.target
        return evaluate(target, scores, self.rows.outcomes)[DEFAULT_METRICS[target.kind]]


def findings(kind: str, folder: Path | None) -> Iterator[Finding]:
    held = grown(TARGETS[kind], folder)
    yield from by_seed(held)
    yield from planted(held, kind)
    yield from named(held)


def grown(target: Target, folder: Path | None) -> Held:
    """Train a model for each seed, unless the folder has its scores."""
    read = ((event(row), row["arr_delay"]) for row in source_data.rows(source_data.locate()) if int(row["month"]) <= 10)
    flights = sorted(
        ((one, float(delay)) for one, delay in read if delay not in ("", "NA")),
        key=lambda each: str(each[0]["scheduled_departure"]),
    )
    events = [one for one, _ in flights]
    delays = np.array([delay for _, delay in flights])
    outcomes = (np.digitize(delays, EDGES) if target.classes else delays).astype(target.dtype)
    columns = {name: np.array([str(one[name]) for one in events], np.str_) for name in CATEGORIES}
    numbers = [np.array([np.nan if one[name] is None else one[name] for one in events], np.float64) for name in NUMBERS]
    codes = [np.unique(columns[name], return_inverse=True)[1].astype(np.float64) for name in CATEGORIES]
    features = np.stack([*numbers, *codes], axis=1)
    moments = [datetime.fromisoformat(f"{one['scheduled_departure']}+00:00").timestamp() for one in events]
    time_ms = (np.array(moments) * 1_000).astype(np.int64)
    learned = time_ms < HELD_FROM
    held = ~learned
    categorical = list(range(len(NUMBERS), len(NUMBERS) + len(CATEGORIES)))

    def scores(seed: int) -> Scores:
        path = folder / f"{target.kind}-{seed}.npy" if folder else None
        if path is not None and path.exists():
            return np.asarray(np.load(path), np.float64)
        data = lightgbm.Dataset(features[learned], outcomes[learned], categorical_feature=categorical)
        booster = lightgbm.train({**PARAMETERS, **OBJECTIVES[target.kind], "seed": seed}, data, TREES)
        result = np.asarray(booster.predict(features[held], num_threads=1), np.float64)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, result)
        return result

    count = int(held.sum())
    zeros = np.zeros(count, np.int16)
    places = Places(("flights",), zeros, zeros.astype(np.int32), np.flatnonzero(held), time_ms[held])
    rows = LabelledRows({}, outcomes[held], places, [b""] * count, target=target)
    slices = {name: columns[name][held] for name in FIELDS}
    return Held(rows, slices, [scores(seed) for seed in range(CHALLENGERS + CHAMPIONS)])


def by_seed(held: Held) -> Iterator[Finding]:
    """Models that differ by their seed alone."""
    better, points = [], []
    for champion in range(CHAMPIONS):
        others = [at for at in range(len(held.scores)) if at != champion][:CHALLENGERS]
        judged = [held.judged(held.scores[champion], held.scores[at], BETTER) for at in others]
        better.append(sum(one.verdict == "passed" for one in judged))
        points.append(sum(one.difference is not None and one.difference.value < 0 for one in judged))
    metrics = [held.metric(scores) for scores in held.scores]
    metric = DEFAULT_METRICS[held.rows.target.kind]
    seen = f"{better}; by the point estimate {points}; {metric} {min(metrics):.4f} to {max(metrics):.4f}"
    what = f"called better, of {CHALLENGERS} that differ by seed alone, beside each of {CHAMPIONS} champions (2 at most)"
    yield Finding(what, f"{seen} on {len(held.rows):,} rows", max(better) <= 2)
    judged = [held.judged(held.scores[0], scores, NOT_WORSE) for scores in held.scores[1 : CHALLENGERS + 1]]
    failing = Counter(failed(one) for one in judged)
    passed = failing.pop("", 0)
    yield Finding("pass as not worse", f"{passed} of {CHALLENGERS}; refused by {dict(failing)}", passed >= 0.9 * CHALLENGERS)
    sliced = f"{failing['slices']} of {CHALLENGERS}, with {len(judged[0].slices)} slices"
    yield Finding("refused for a slice", sliced, not failing["slices"])


def planted(held: Held, kind: str) -> Iterator[Finding]:
    """Challengers made worse, by noise, and by a loss in one class or a bias."""
    for loss in LOSSES[kind]:
        judged = (held.judged(held.scores[0], worsened(held, at, loss), NOT_WORSE) for at in range(1, PLANTED + 1))
        what = f"worse by {loss} log loss, by noise" if kind == "classes" else f"worse by {loss:.0%} of the RMSE, by noise"
        yield refused(what, judged)
    if kind == "regression":
        biased = (held.judged(held.scores[0], held.scores[at] + 4, NOT_WORSE) for at in range(1, PLANTED + 1))
        yield refused("four minutes too long", biased)
        return
    shy = (held.judged(held.scores[0], reluctant(held.scores[at]), NOT_WORSE) for at in range(1, PLANTED + 1))
    yield refused("a quarter of the decisions for the last class are lost", shy)


def refused(what: str, judged: Iterable[GateComparison]) -> Finding:
    found = Counter(failed(one) for one in judged)
    count = PLANTED - found.pop("", 0)
    return Finding(f"{what}: refused of {PLANTED}", f"{count}, by {dict(found)}", count == PLANTED)


def worsened(held: Held, at: int, loss: float) -> Scores:
    """The scores of a model with as much noise as makes its metric so much worse than the champion's."""
    scores = held.scores[at]
    noise = np.random.default_rng(at).normal(size=scores.shape)
    champion = held.metric(held.scores[0])
    wanted = champion + (loss if held.rows.target.classes else loss * champion)

    def noisy(sigma: float) -> Scores:
        if not held.rows.target.classes:
            return scores + sigma * noise
        logits = np.log(scores.clip(1e-9)) + sigma * noise
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    return noisy(float(brentq(lambda sigma: held.metric(noisy(sigma)) - wanted, 0.0, 50.0, xtol=1e-4)))


def reluctant(scores: Scores) -> Scores:
    """The scores of a model that decides for the last class only where it is more certain."""
    chosen = np.flatnonzero(scores.argmax(axis=1) == 2)
    uncertain = chosen[np.argsort(scores[chosen, 2])[: len(chosen) // 4]]
    changed = scores.copy()
    moved = (changed[uncertain, 2] - changed[uncertain, :2].max(axis=1)) / 2 + 1e-6
    changed[uncertain, 2] -= moved
    changed[uncertain, changed[uncertain, :2].argmax(axis=1)] += moved
    return changed


def named(held: Held) -> Iterator[Finding]:
    """What must be refused by its name."""
    champion, challenger = held.scores[0], held.scores[1]
    yield expected("an identical model", held.judged(champion, champion.copy(), NOT_WORSE), "differs", "same")
    broken = challenger.copy()
    hit = np.flatnonzero(held.slices["carrier"] == "US")
    broken[hit] = broken[np.random.default_rng(2).permutation(hit)]
    lenient = NOT_WORSE.model_copy(update={"margin": 0.9, "class_margin": 0.5})
    yield expected(f"{len(hit):,} flights of one carrier scored at random", held.judged(champion, broken, lenient), "slices")
    yield expected("a first model", held.judged(None, champion, NOT_WORSE), "", "passed")
    metric = DEFAULT_METRICS[held.rows.target.kind]
    simple = constant(held.rows.target, held.rows.outcomes, metric).scores
    yield expected("a first model that is a constant", held.judged(None, simple, NOT_WORSE), "chance")
    last = held.rows.places.time_ms >= held.rows.places.time_ms.max() - 3 * DAY_MS
    short = replace(held, rows=held.rows.select(last), slices={name: column[last] for name, column in held.slices.items()})
    yield expected("three days of hold-out", short.judged(champion[last], challenger[last], NOT_WORSE), "blocks")
