"""`python -m tests.proofs.training.gate`: the gate on real flights, with real models: how often it is wrong, and what it names.

LightGBM learns from January to August; September and October are the hold-out. Challengers that differ by their seed alone
must not be called better; one that is worse by 0.01 AUC must be refused; a champion that has learned from the hold-out, stale
labels, missing labels, an identical model and a loss in one slice must be named. Exit code 1 where a claim does not hold.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import lightgbm
import numpy as np
import orjson
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

from scorer.rollout.labels.quality import auc
from tests.proofs.findings import Finding, told
from training.flights import source_data
from training.flights.features import event, late
from training.gate.comparison import Comparison
from training.gate.evidence import Evidence, Version
from training.gate.leak import Learned
from training.gate.metrics import Scored
from training.gate.verdict import judge
from training.settings import GateSection
from training.snapshot.rows import Places, Rows

NUMBERS = ("dep_delay", "distance", "hour", "minute", "day_of_week", "scheduled_minutes")
CATEGORIES = ("carrier", "origin", "dest")
FIELDS = ("carrier", "origin")
CHALLENGERS, PLANTED, DROP, CHAMPIONS = 40, 20, 0.01, 5
PARAMETERS = {
    "objective": "binary", "num_leaves": 31, "learning_rate": 0.1, "min_data_in_leaf": 50, "bagging_fraction": 0.8,
    "bagging_freq": 1, "feature_fraction": 0.8, "deterministic": True, "force_row_wise": True, "num_threads": 1, "verbose": -1,
}  # fmt: skip
TREES, COVERAGE, SEED = 100, 0.9, 2013
DAY_MS = 86_400_000
NOT_WORSE, BETTER = (GateSection.model_validate({"slices": FIELDS, "promote": rule}) for rule in ("not-worse", "better"))


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
    parser = argparse.ArgumentParser(prog="python -m tests.proofs.training.gate", description=__doc__.splitlines()[0])
    parser.parse_args(arguments)
    return told(findings())


def findings() -> Iterator[Finding]:
    flights = loaded()
    stage = Stage(flights)
    yield from by_seed(stage)
    yield from planted(stage)
    yield from named(stage, flights)


def loaded() -> Flights:
    found = [(event(row), late(row)) for row in source_data.rows(source_data.locate()) if int(row["month"]) <= 10]
    kept = sorted(((one, bool(was)) for one, was in found if was is not None), key=lambda each: each[0]["scheduled_departure"])
    events = [one for one, _ in kept]
    columns = {name: np.array([str(one[name]) for one in events], np.str_) for name in CATEGORIES}
    numbers = [np.array([np.nan if one[name] is None else one[name] for one in events], np.float64) for name in NUMBERS]
    codes = [np.unique(columns[name], return_inverse=True)[1].astype(np.float64) for name in CATEGORIES]
    moments = [datetime.fromisoformat(f"{one['scheduled_departure']}+00:00").timestamp() for one in events]
    return Flights(
        np.stack([*numbers, *codes], axis=1),
        np.array([was for _, was in kept], np.bool_),
        (np.array(moments) * 1_000).astype(np.int64),
        [orjson.dumps(one) for one in events],
        columns,
    )


class Stage:
    """The hold-out, and models by seed."""

    def __init__(self, flights: Flights) -> None:
        learned = flights.before(9)
        held = ~learned
        self.learned, self.features = int(learned.sum()), flights.features[held]
        self.true = flights.late[held]
        count = int(held.sum())
        offsets = np.arange(len(held))[held]
        zeros = np.zeros(count, np.int16)
        places = Places(("flights",), zeros, zeros.astype(np.int32), offsets, flights.time_ms[held])
        values = [value for value, kept in zip(flights.values, held, strict=True) if kept]
        self.rows = Rows({}, self.true.astype(np.int8), places, values)
        self.slices = {name: flights.columns[name][held] for name in FIELDS}
        self.scores = [
            self.model(flights.features[learned], flights.late[learned], seed) for seed in range(CHALLENGERS + CHAMPIONS)
        ]

    def model(self, features: NDArray[np.float64], outcomes: NDArray[np.bool_], seed: int) -> NDArray[np.float64]:
        """The scores of the hold-out by trees with this seed."""
        parameters: dict[str, Any] = PARAMETERS | {"seed": seed, "categorical_feature": "6,7,8"}
        booster = lightgbm.train(parameters, lightgbm.Dataset(features, outcomes.astype(np.int8)), TREES)
        return np.asarray(booster.predict(self.features), np.float64)

    def evidence(self, champion: NDArray[np.float64] | None, challenger: NDArray[np.float64]) -> Evidence:
        version = (lambda name, scores: Version(name, "", Scored(scores, scores >= 0.5)))  # fmt: skip
        return Evidence(
            run="proof",
            rows=self.rows,
            classes=("on time", "late"),
            mature_times=self.rows.places.time_ms,
            challenger=version("challenger", challenger),
            champion=None if champion is None else version("champion", champion),
            leaked=None if champion is None else 0,
            slices=self.slices,
        )

    def judged(self, champion: NDArray[np.float64] | None, challenger: NDArray[np.float64], gate: GateSection) -> Comparison:
        return judge(self.evidence(champion, challenger), gate, COVERAGE, SEED)

    def auc(self, scores: NDArray[np.float64]) -> float:
        return auc(scores, self.true) or 0.0


def by_seed(stage: Stage) -> Iterator[Finding]:
    """Models that differ by their seed alone."""
    begun, better, points, refused = time.monotonic(), [], [], Counter[str]()
    for champion in range(CHAMPIONS):
        others = [at for at in range(len(stage.scores)) if at != champion][:CHALLENGERS]
        judged = [stage.judged(stage.scores[champion], stage.scores[at], BETTER) for at in others]
        better.append(sum(one.verdict == "passed" for one in judged))
        points.append(sum(one.difference is not None and one.difference.value > 0 for one in judged))
    seconds = (time.monotonic() - begun) / (CHAMPIONS * CHALLENGERS)
    aucs = [stage.auc(scores) for scores in stage.scores]
    seen = f"{better} (point estimates: {points}); AUC {min(aucs):.4f} to {max(aucs):.4f}, {len(stage.rows):,} rows"
    yield Finding(
        f"of {CHALLENGERS} that differ by seed at most 2 are called better, by {CHAMPIONS} champions", seen, max(better) <= 2
    )
    judged = [stage.judged(stage.scores[0], scores, NOT_WORSE) for scores in stage.scores[1 : CHALLENGERS + 1]]
    refused.update(failed(one) for one in judged if one.verdict != "passed")
    passed = len(judged) - refused.total()
    yield Finding(
        f"most of {CHALLENGERS} that differ by seed pass as not worse",
        f"{passed}; refused by {dict(refused)}",
        passed >= CHALLENGERS * 0.8,
    )
    slices = sum(failed(one) == "slices" for one in judged)
    yield Finding(f"none of them is refused for one of {len(judged[0].slices)} slices", f"{slices}", slices == 0)
    yield Finding("a verdict takes a second at most", f"{seconds:.2f} s with 1,000 resamples", seconds <= 1.0)


def planted(stage: Stage) -> Iterator[Finding]:
    """Challengers made worse by noise."""
    champion = stage.scores[0]
    for drop in (0.002, 0.004, DROP):
        found = Counter(failed(stage.judged(champion, worsened(stage, at, drop), NOT_WORSE)) for at in range(1, PLANTED + 1))
        count = PLANTED - found.pop("", 0)
        ok = count == PLANTED if drop == DROP else True
        yield Finding(
            f"-{drop} AUC: {PLANTED} of {PLANTED} are refused" if drop == DROP else f"-{drop} AUC (to compare)",
            f"{count}, by {dict(found)}",
            ok,
        )


def worsened(stage: Stage, at: int, drop: float) -> NDArray[np.float64]:
    """The scores of a model with as much noise as makes its AUC so much less than the champion's."""
    noise, scores = np.random.default_rng(at).normal(size=len(stage.true)), logit(stage.scores[at].clip(1e-9, 1 - 1e-9))
    noisy: Callable[[float], NDArray[np.float64]] = lambda sigma: expit(scores + sigma * noise)
    wanted = stage.auc(stage.scores[0]) - drop
    return noisy(brentq(lambda sigma: stage.auc(noisy(sigma)) - wanted, 0.0, 5.0, xtol=1e-6))


def named(stage: Stage, flights: Flights) -> Iterator[Finding]:
    """What must be refused by its name."""
    champion, challenger = stage.scores[0], stage.scores[1]
    yield expected("an identical model", stage.judged(champion, champion.copy(), NOT_WORSE), "differs", "same")
    saw = stage.model(flights.features, flights.late, SEED)
    spans = Learned("cluster", {("flights", 0): (0, len(flights.late))}, None)
    leak = replace(stage.evidence(saw, challenger), leaked=spans.rows(stage.rows, "cluster"))
    looks = f"it looks {stage.auc(saw) - stage.auc(champion):+.4f} AUC better"
    yield expected(f"a champion that has learned from the hold-out ({looks})", judge(leak, NOT_WORSE, COVERAGE, SEED), "leak")
    evidence, times = stage.evidence(champion, challenger), stage.rows.places.time_ms
    stale = evidence.select(times < times.max() - 3 * DAY_MS)
    yield expected("labels of the last three days are not there", judge(stale, NOT_WORSE, COVERAGE, SEED), "fresh")
    few = evidence.select(np.random.default_rng(1).random(len(times)) < 0.8)
    yield expected("one label in five is not there", judge(few, NOT_WORSE, COVERAGE, SEED), "coverage")
    short = times >= times.max() - 7 * DAY_MS
    week = replace(stage.evidence(champion, worsened(stage, 2, 0.002)).select(short), mature_times=times[short])
    yield Finding("a week of a model that is 0.002 worse", week_told(judge(week, NOT_WORSE, COVERAGE, SEED)), True)
    broken = challenger.copy()
    hit = np.flatnonzero(stage.slices["carrier"] == "US")
    broken[hit] = broken[np.random.default_rng(2).permutation(hit)]
    lenient = NOT_WORSE.model_copy(update={"margin": 0.05, "class_margin": 0.5})
    yield expected(f"{len(hit):,} flights of one carrier scored at random", stage.judged(champion, broken, lenient), "slices")
    yield expected("a first model", stage.judged(None, champion, NOT_WORSE), "", "passed")
    coin = np.random.default_rng(3).random(len(stage.true))
    yield expected("a first model that is a coin", stage.judged(None, coin, NOT_WORSE), "chance")


def week_told(found: Comparison) -> str:
    return f"{found.verdict}: {found.because}"


def expected(what: str, found: Comparison, rule: str, verdict: str = "refused") -> Finding:
    return Finding(what, week_told(found), (found.verdict, failed(found)) == (verdict, rule))


def failed(found: Comparison) -> str:
    """The first rule that failed; nothing where none did."""
    return next((rule.name for rule in found.rules if not rule.passed), "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
