"""Error rates of the gate on real flights with other targets: the arrival delay in three classes, and in minutes.

LightGBM learns from January to August; September and October are the hold-out. The gate must not rate challengers as better
that differ by their seed alone, and must refuse challengers with a planted loss.
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
EDGES = (15, 60)  # the least delays in minutes of a late and of a very late flight
TARGETS = {"classes": Target("classes", NAMES), "regression": Target("regression")}
OBJECTIVES: Mapping[str, Mapping[str, Any]] = {
    "classes": {"objective": "multiclass", "num_class": len(NAMES)},
    "regression": {"objective": "regression"},
}
LOSSES: Mapping[str, tuple[float, ...]] = {"classes": (0.004, 0.008, 0.016), "regression": (0.01, 0.02, 0.04)}
"""The planted losses: in log loss, or as a share of the champion's RMSE."""
CHAMPIONS = 2
HOLD_OUT_START = int(datetime(2013, 9, 1, tzinfo=UTC).timestamp() * 1_000)


@dataclass(frozen=True)
class HoldOut:
    """The hold-out, and its scores by models that differ by their seed alone."""

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
    hold_out = train_models(TARGETS[kind], folder)
    yield from by_seed(hold_out)
    yield from planted(hold_out, kind)
    yield from named_refusals(hold_out)


def train_models(target: Target, folder: Path | None) -> HoldOut:
    """Train a model for each seed, unless the folder has its scores."""
    read = ((event(row), row["arr_delay"]) for row in source_data.rows(source_data.locate()) if int(row["month"]) <= 10)
    flights = sorted(
        ((flight, float(delay)) for flight, delay in read if delay not in ("", "NA")),
        key=lambda pair: str(pair[0]["scheduled_departure"]),
    )
    events = [flight for flight, _ in flights]
    delays = np.array([delay for _, delay in flights])
    outcomes = (np.digitize(delays, EDGES) if target.classes else delays).astype(target.dtype)
    columns = {name: np.array([str(flight[name]) for flight in events], np.str_) for name in CATEGORIES}
    numbers = [
        np.array([np.nan if flight[name] is None else flight[name] for flight in events], np.float64) for name in NUMBERS
    ]
    codes = [np.unique(columns[name], return_inverse=True)[1].astype(np.float64) for name in CATEGORIES]
    features = np.stack([*numbers, *codes], axis=1)
    moments = [datetime.fromisoformat(f"{flight['scheduled_departure']}+00:00").timestamp() for flight in events]
    time_ms = (np.array(moments) * 1_000).astype(np.int64)
    learned = time_ms < HOLD_OUT_START
    in_hold_out = ~learned
    categorical = list(range(len(NUMBERS), len(NUMBERS) + len(CATEGORIES)))

    def scores(seed: int) -> Scores:
        path = folder / f"{target.kind}-{seed}.npy" if folder else None
        if path is not None and path.exists():
            return np.asarray(np.load(path), np.float64)
        data = lightgbm.Dataset(features[learned], outcomes[learned], categorical_feature=categorical)
        booster = lightgbm.train({**PARAMETERS, **OBJECTIVES[target.kind], "seed": seed}, data, TREES)
        result = np.asarray(booster.predict(features[in_hold_out], num_threads=1), np.float64)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, result)
        return result

    count = int(in_hold_out.sum())
    zeros = np.zeros(count, np.int16)
    places = Places(("flights",), zeros, zeros.astype(np.int32), np.flatnonzero(in_hold_out), time_ms[in_hold_out])
    rows = LabelledRows({}, outcomes[in_hold_out], places, [b""] * count, target=target)
    slices = {name: columns[name][in_hold_out] for name in FIELDS}
    return HoldOut(rows, slices, [scores(seed) for seed in range(CHALLENGERS + CHAMPIONS)])


def by_seed(hold_out: HoldOut) -> Iterator[Finding]:
    """Judge models that differ by their seed alone."""
    better, points = [], []
    for champion in range(CHAMPIONS):
        others = [index for index in range(len(hold_out.scores)) if index != champion][:CHALLENGERS]
        comparisons = [hold_out.judged(hold_out.scores[champion], hold_out.scores[index], BETTER) for index in others]
        better.append(sum(comparison.verdict == "passed" for comparison in comparisons))
        points.append(sum(comparison.difference is not None and comparison.difference.value < 0 for comparison in comparisons))
    metrics = [hold_out.metric(scores) for scores in hold_out.scores]
    metric = DEFAULT_METRICS[hold_out.rows.target.kind]
    observed = f"{better}; by the point estimate {points}; {metric} {min(metrics):.4f} to {max(metrics):.4f}"
    claim = f"rated better, of {CHALLENGERS} that differ by seed alone, against each of {CHAMPIONS} champions (2 at most)"
    yield Finding(claim, f"{observed} on {len(hold_out.rows):,} rows", max(better) <= 2)
    comparisons = [hold_out.judged(hold_out.scores[0], scores, NOT_WORSE) for scores in hold_out.scores[1 : CHALLENGERS + 1]]
    failing = Counter(failed(comparison) for comparison in comparisons)
    passed = failing.pop("", 0)
    yield Finding("pass as not worse", f"{passed} of {CHALLENGERS}; refused by {dict(failing)}", passed >= 0.9 * CHALLENGERS)
    sliced = f"{failing['slices']} of {CHALLENGERS}, with {len(comparisons[0].slices)} slices"
    yield Finding("refused for a slice", sliced, not failing["slices"])


def planted(hold_out: HoldOut, kind: str) -> Iterator[Finding]:
    """Judge challengers with a planted loss: noise, a loss in one class, or a bias."""
    for loss in LOSSES[kind]:
        comparisons = (
            hold_out.judged(hold_out.scores[0], worsened(hold_out, index, loss), NOT_WORSE) for index in range(1, PLANTED + 1)
        )
        claim = f"worse by {loss} log loss, by noise" if kind == "classes" else f"worse by {loss:.0%} of the RMSE, by noise"
        yield refused(claim, comparisons)
    if kind == "regression":
        biased = (hold_out.judged(hold_out.scores[0], hold_out.scores[index] + 4, NOT_WORSE) for index in range(1, PLANTED + 1))
        yield refused("four minutes too long", biased)
        return
    shy = (hold_out.judged(hold_out.scores[0], reluctant(hold_out.scores[index]), NOT_WORSE) for index in range(1, PLANTED + 1))
    yield refused("a quarter of the decisions for the last class are lost", shy)


def refused(claim: str, comparisons: Iterable[GateComparison]) -> Finding:
    failed_rules = Counter(failed(comparison) for comparison in comparisons)
    count = PLANTED - failed_rules.pop("", 0)
    return Finding(f"{claim}: refused of {PLANTED}", f"{count}, by {dict(failed_rules)}", count == PLANTED)


def worsened(hold_out: HoldOut, index: int, loss: float) -> Scores:
    """Return the scores of a model, with noise that makes its metric worse than the champion's by `loss`."""
    scores = hold_out.scores[index]
    noise = np.random.default_rng(index).normal(size=scores.shape)
    champion = hold_out.metric(hold_out.scores[0])
    wanted = champion + (loss if hold_out.rows.target.classes else loss * champion)

    def noisy(sigma: float) -> Scores:
        if not hold_out.rows.target.classes:
            return scores + sigma * noise
        logits = np.log(scores.clip(1e-9)) + sigma * noise
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    return noisy(float(brentq(lambda sigma: hold_out.metric(noisy(sigma)) - wanted, 0.0, 50.0, xtol=1e-4)))


def reluctant(scores: Scores) -> Scores:
    """Return the scores of a model that decides for the last class only if it is more certain."""
    chosen = np.flatnonzero(scores.argmax(axis=1) == 2)
    uncertain = chosen[np.argsort(scores[chosen, 2])[: len(chosen) // 4]]
    changed = scores.copy()
    moved = (changed[uncertain, 2] - changed[uncertain, :2].max(axis=1)) / 2 + 1e-6
    changed[uncertain, 2] -= moved
    changed[uncertain, changed[uncertain, :2].argmax(axis=1)] += moved
    return changed


def named_refusals(hold_out: HoldOut) -> Iterator[Finding]:
    """Judge challengers that one rule must refuse."""
    champion, challenger = hold_out.scores[0], hold_out.scores[1]
    yield expected("an identical model", hold_out.judged(champion, champion.copy(), NOT_WORSE), "differs", "same")
    broken = challenger.copy()
    hit = np.flatnonzero(hold_out.slices["carrier"] == "US")
    broken[hit] = broken[np.random.default_rng(2).permutation(hit)]
    lenient = NOT_WORSE.model_copy(update={"margin": 0.9, "class_margin": 0.5})
    yield expected(
        f"{len(hit):,} flights of one carrier scored at random", hold_out.judged(champion, broken, lenient), "slices"
    )
    yield expected("a first model", hold_out.judged(None, champion, NOT_WORSE), "", "passed")
    metric = DEFAULT_METRICS[hold_out.rows.target.kind]
    simple = constant(hold_out.rows.target, hold_out.rows.outcomes, metric).scores
    yield expected("a first model that is a constant", hold_out.judged(None, simple, NOT_WORSE), "chance")
    last = hold_out.rows.places.time_ms >= hold_out.rows.places.time_ms.max() - 3 * DAY_MS
    short = replace(
        hold_out, rows=hold_out.rows.select(last), slices={name: column[last] for name, column in hold_out.slices.items()}
    )
    yield expected("three days of hold-out", short.judged(champion[last], challenger[last], NOT_WORSE), "blocks")
