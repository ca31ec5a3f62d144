"""`python -m tests.benchmarks.training.gate`: error rates of the gate on real flights and models.

LightGBM learns from January to August; September and October are the hold-out. The gate must not rate challengers as better
that differ by their seed alone. It must refuse a challenger that is worse by 0.01 AUC, and report by its rule a champion that
has learned from the hold-out, stale labels, missing labels, an identical model and a loss in one slice. The exit code is 1 if a
claim does not hold. `--target classes` and `--target regression` do the same for the arrival delay in three classes and in
minutes.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import lightgbm
import numpy as np
import orjson
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

from scorer.evaluation.quality_metrics import auc
from tests.benchmarks.findings import Finding, report_findings
from training.demo_dataset import source_data
from training.demo_dataset.features import event, late
from training.settings import GateSection
from training.snapshot.rows import LabelledRows, Places
from training.snapshot.target import Target
from training.validation_gate.comparison import GateComparison
from training.validation_gate.inputs import VerdictEvidence, Version
from training.validation_gate.leakage import Learned
from training.validation_gate.metrics import ModelAnswers, decide
from training.validation_gate.verdict import judge

NUMBERS = ("dep_delay", "distance", "hour", "minute", "day_of_week", "scheduled_minutes")
CATEGORIES = ("carrier", "origin", "dest")
FIELDS = ("carrier", "origin")
CHALLENGERS, PLANTED, DROP, CHAMPIONS = 40, 20, 0.01, 5
PARAMETERS = {
    "objective": "binary",
    "num_leaves": 31,
    "learning_rate": 0.1,
    "min_data_in_leaf": 50,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "feature_fraction": 0.8,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbose": -1,
}
TREES, COVERAGE, SEED, WEEKS = 100, 0.9, 2013, 2
DAY_MS = 86_400_000
TARGET = Target("binary", ("on time", "late"))
NOT_WORSE, BETTER = GateSection(slices=FIELDS), GateSection(promote="better")
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Flights:
    """Flights that arrived, by scheduled departure: features (B, 9), outcomes, times, and the events as JSON."""

    features: NDArray[np.float64]
    late: NDArray[np.bool_]
    time_ms: NDArray[np.int64]
    values: list[bytes]
    columns: dict[str, NDArray[np.str_]]

    def before(self, month: int) -> NDArray[np.bool_]:
        begin = int(datetime(2013, month, 1, tzinfo=UTC).timestamp() * 1_000)
        return self.time_ms < begin


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.training.gate", description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=("binary", "classes", "regression"), default="binary")
    parser.add_argument("--scores", type=Path, help="a folder that keeps the scores of the models for the next run")
    options = parser.parse_args(arguments)
    if options.target == "binary":
        if options.scores is not None:
            parser.error("--scores needs --target classes or --target regression")
        return report_findings(findings())
    from tests.benchmarks.training import gate_of_targets

    return report_findings(gate_of_targets.findings(options.target, options.scores))


def findings() -> Iterator[Finding]:
    flights = loaded()
    stage = Stage(flights)
    yield from by_seed(stage)
    yield by_weeks(stage)
    yield from planted(stage)
    yield from named_refusals(stage, flights)


def loaded() -> Flights:
    flights = [(event(row), late(row)) for row in source_data.rows(source_data.locate()) if int(row["month"]) <= 10]
    arrived = sorted(
        ((flight, bool(is_late)) for flight, is_late in flights if is_late is not None),
        key=lambda pair: str(pair[0]["scheduled_departure"]),
    )
    events = [flight for flight, _ in arrived]
    columns = {name: np.array([str(flight[name]) for flight in events], np.str_) for name in CATEGORIES}
    numbers = [
        np.array([np.nan if flight[name] is None else flight[name] for flight in events], np.float64) for name in NUMBERS
    ]
    codes = [np.unique(columns[name], return_inverse=True)[1].astype(np.float64) for name in CATEGORIES]
    moments = [datetime.fromisoformat(f"{flight['scheduled_departure']}+00:00").timestamp() for flight in events]
    return Flights(
        np.stack([*numbers, *codes], axis=1),
        np.array([is_late for _, is_late in arrived], np.bool_),
        (np.array(moments) * 1_000).astype(np.int64),
        [orjson.dumps(flight) for flight in events],
        columns,
    )


class Stage:
    """The hold-out, and one model per seed."""

    def __init__(self, flights: Flights) -> None:
        learned = flights.before(9)
        in_hold_out = ~learned
        self.learned, self.features = int(learned.sum()), flights.features[in_hold_out]
        self.true = flights.late[in_hold_out]
        count = int(in_hold_out.sum())
        offsets = np.arange(len(in_hold_out))[in_hold_out]
        zeros = np.zeros(count, np.int16)
        places = Places(("flights",), zeros, zeros.astype(np.int32), offsets, flights.time_ms[in_hold_out])
        values = [value for value, chosen in zip(flights.values, in_hold_out, strict=True) if chosen]
        self.rows = LabelledRows({}, self.true.astype(np.int8), places, values, target=TARGET)
        self.slices = {name: flights.columns[name][in_hold_out] for name in FIELDS}
        self.boosters = [self.train(flights, learned, seed) for seed in range(CHALLENGERS + CHAMPIONS)]
        self.scores = [self.predicted(booster) for booster in self.boosters]

    def train(self, flights: Flights, learned: NDArray[np.bool_], seed: int) -> lightgbm.Booster:
        """Train trees with this seed."""
        places = list(range(len(NUMBERS), len(NUMBERS) + len(CATEGORIES)))
        data = lightgbm.Dataset(flights.features[learned], flights.late[learned].astype(np.int8), categorical_feature=places)
        return lightgbm.train(PARAMETERS | {"seed": seed}, data, TREES)

    def predicted(self, booster: lightgbm.Booster, trees: int = TREES) -> Scores:
        """Return the scores of the hold-out by the first `trees` trees."""
        return np.asarray(booster.predict(self.features, num_iteration=trees), np.float64)

    def evidence(self, champion: Scores | None, challenger: Scores) -> VerdictEvidence:
        return VerdictEvidence(
            run="proof",
            rows=self.rows,
            mature_times=self.rows.places.time_ms,
            challenger=version("challenger", challenger),
            champion=None if champion is None else version("champion", champion),
            leaked=None if champion is None else 0,
            slices=self.slices,
        )

    def judged(self, champion: Scores | None, challenger: Scores, gate: GateSection) -> GateComparison:
        return judge(self.evidence(champion, challenger), gate, COVERAGE, SEED)

    def auc(self, scores: Scores) -> float:
        return auc(scores, self.true) or 0.0


def version(name: str, scores: Scores) -> Version:
    return Version(name, "", ModelAnswers(scores, decide(TARGET, scores)))


def by_seed(stage: Stage) -> Iterator[Finding]:
    """Judge models that differ by their seed alone."""
    better, points = [], []
    for champion in range(CHAMPIONS):
        others = [index for index in range(len(stage.scores)) if index != champion][:CHALLENGERS]
        comparisons = [stage.judged(stage.scores[champion], stage.scores[index], BETTER) for index in others]
        better.append(sum(comparison.verdict == "passed" for comparison in comparisons))
        points.append(sum(comparison.difference is not None and comparison.difference.value > 0 for comparison in comparisons))
    aucs = [stage.auc(scores) for scores in stage.scores]
    observed = f"{better}; by the point estimate {points}; AUC {min(aucs):.4f} to {max(aucs):.4f} on {len(stage.rows):,} rows"
    claim = f"rated better, of {CHALLENGERS} that differ by seed alone, against each of {CHAMPIONS} champions (2 at most)"
    yield Finding(claim, observed, max(better) <= 2)
    began = time.monotonic()
    comparisons = [stage.judged(stage.scores[0], scores, NOT_WORSE) for scores in stage.scores[1 : CHALLENGERS + 1]]
    seconds = (time.monotonic() - began) / len(comparisons)
    failing = Counter(failed(comparison) for comparison in comparisons)
    passed = failing.pop("", 0)
    yield Finding("pass as not worse", f"{passed}; refused by {dict(failing)}", passed >= 0.9 * CHALLENGERS)
    sliced = f"{failing['slices']} of {CHALLENGERS}, with {len(comparisons[0].slices)} slices"
    yield Finding("refused for a slice", sliced, not failing["slices"])
    yield Finding("a verdict takes at most 3 s", f"{seconds:.2f} s, {NOT_WORSE.resamples:,} resamples", seconds <= 3)


def by_weeks(stage: Stage) -> Finding:
    """Count the challengers that pass as not worse with a shorter hold-out."""
    times = stage.rows.places.time_ms
    short = times >= times.max() - WEEKS * 7 * DAY_MS
    parts = (stage.evidence(stage.scores[0], scores).select(short) for scores in stage.scores[1 : CHALLENGERS + 1])
    failed_rules = Counter(
        failed(judge(replace(evidence, mature_times=times[short]), NOT_WORSE, COVERAGE, SEED)) for evidence in parts
    )
    passed = failed_rules.pop("", 0)
    observed = f"{passed} of {CHALLENGERS}, by {int(short.sum()):,} rows; refused by {dict(failed_rules)}"
    return Finding(f"pass as not worse by {WEEKS} weeks alone (to compare)", observed, True)


def planted(stage: Stage) -> Iterator[Finding]:
    """Judge challengers with a planted loss: noise, or fewer trees."""
    numbers = range(1, PLANTED + 1)
    for drop in (0.002, 0.004, DROP):
        worse = (stage.judged(stage.scores[0], worsened(stage, index, drop), NOT_WORSE) for index in numbers)
        yield refused(f"worse by {drop} AUC, by noise", worse, all_of_them=drop == DROP)
    weak = [fewer(stage, stage.boosters[index]) for index in numbers]
    drops = [stage.auc(stage.scores[0]) - stage.auc(scores) for scores in weak]
    claim = f"worse by {min(drops):.3f} to {max(drops):.3f} AUC, by fewer trees"
    yield refused(claim, (stage.judged(stage.scores[0], scores, NOT_WORSE) for scores in weak), all_of_them=True)


def refused(claim: str, comparisons: Iterable[GateComparison], *, all_of_them: bool) -> Finding:
    failed_rules = Counter(failed(comparison) for comparison in comparisons)
    count = PLANTED - failed_rules.pop("", 0)
    return Finding(f"{claim}: refused of {PLANTED}", f"{count}, by {dict(failed_rules)}", count == PLANTED or not all_of_them)


def worsened(stage: Stage, index: int, drop: float) -> Scores:
    """Return the scores of a model, with noise that makes its AUC lower than the champion's by `drop`."""
    noise, scores = np.random.default_rng(index).normal(size=len(stage.true)), logit(stage.scores[index].clip(1e-9, 1 - 1e-9))
    wanted = stage.auc(stage.scores[0]) - drop

    def noisy(sigma: float) -> Scores:
        return np.asarray(expit(scores + sigma * noise))

    return noisy(float(brentq(lambda sigma: stage.auc(noisy(sigma)) - wanted, 0.0, 5.0, xtol=1e-4)))


def fewer(stage: Stage, booster: lightgbm.Booster) -> Scores:
    """Return the scores by the largest number of trees whose AUC is lower than the champion's by at least DROP."""
    wanted, trees = stage.auc(stage.scores[0]) - DROP, 1
    scores = stage.predicted(booster, trees)
    while stage.auc(next_scores := stage.predicted(booster, trees + 1)) <= wanted:
        scores, trees = next_scores, trees + 1
    return scores


def named_refusals(stage: Stage, flights: Flights) -> Iterator[Finding]:
    """Judge challengers that one rule must refuse."""
    champion, challenger = stage.scores[0], stage.scores[1]
    yield expected("an identical model", stage.judged(champion, champion.copy(), NOT_WORSE), "differs", "same")
    leaked_scores = stage.predicted(stage.train(flights, np.ones(len(flights.late), np.bool_), SEED))
    spans = Learned("cluster", {("flights", 0): (0, len(flights.late))}, None)
    leak = replace(stage.evidence(leaked_scores, challenger), leaked=spans.rows(stage.rows, "cluster"))
    advantage = f"it looks {stage.auc(leaked_scores) - stage.auc(champion):+.4f} AUC better"
    yield expected(
        f"a champion that has learned from the hold-out ({advantage})", judge(leak, NOT_WORSE, COVERAGE, SEED), "leak"
    )
    evidence, times = stage.evidence(champion, challenger), stage.rows.places.time_ms
    stale = evidence.select(times < times.max() - 3 * DAY_MS)
    yield expected("labels of the last three days are missing", judge(stale, NOT_WORSE, COVERAGE, SEED), "fresh")
    few = evidence.select(np.random.default_rng(1).random(len(times)) < 0.8)
    yield expected("one label in five is missing", judge(few, NOT_WORSE, COVERAGE, SEED), "coverage")
    short = times >= times.max() - 7 * DAY_MS
    week = replace(stage.evidence(champion, worsened(stage, 2, 0.002)).select(short), mature_times=times[short])
    yield Finding("a week of a model that is 0.002 worse", sentence(judge(week, NOT_WORSE, COVERAGE, SEED)), True)
    broken = challenger.copy()
    hit = np.flatnonzero(stage.slices["carrier"] == "US")
    broken[hit] = broken[np.random.default_rng(2).permutation(hit)]
    lenient = NOT_WORSE.model_copy(update={"margin": 0.05, "class_margin": 0.5})
    yield expected(f"{len(hit):,} flights of one carrier scored at random", stage.judged(champion, broken, lenient), "slices")
    yield expected("a first model", stage.judged(None, champion, NOT_WORSE), "", "passed")
    coin = np.random.default_rng(3).random(len(stage.true))
    yield expected("a first model that is a coin", stage.judged(None, coin, NOT_WORSE), "chance")


def sentence(comparison: GateComparison) -> str:
    return f"{comparison.verdict}: {comparison.because}"


def expected(claim: str, comparison: GateComparison, rule: str, verdict: str = "refused") -> Finding:
    return Finding(claim, sentence(comparison), (comparison.verdict, failed(comparison)) == (verdict, rule))


def failed(comparison: GateComparison) -> str:
    """Return the name of the first rule that failed, or an empty string."""
    return next((rule.name for rule in comparison.rules if not rule.passed), "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
