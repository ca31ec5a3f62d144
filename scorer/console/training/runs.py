"""Runs of training as the console shows them: what was attested, beside what the channels did with the version. Pure.

Nothing is believed because it is attested: a verdict that no trusted key signed is a claim, and is called one.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime

from model_registry.channels.history import ChannelMove
from model_registry.channels.roles import CHAMPION
from scorer.console.state import Channel
from scorer.console.training.attestations import RUN_VERSION, VersionAttestations
from scorer.console.training.documents import (
    TRAINING_BUILD,
    ComparedVersion,
    ComparisonDocument,
    InternalParameters,
    MetricDifference,
)

WIDTH = 1_000.0  # of a bar, in its own units
SHORTEST, LONGEST = 1.5, 4.0  # margins that a bar shows at least, and at most where its estimate is in them
RUN = re.compile(r"[0-9a-f]{12}")
UNREADABLE, UNJUDGED = "unreadable", "not judged"
TONES = {"passed": "good", "refused": "bad", "same": "wait", UNREADABLE: "bad", UNJUDGED: "wait"}


@dataclass(frozen=True, slots=True)
class DifferenceBar:
    """An interval of a difference; more is better. `left`, `right`, `mean`, `zero` and `edge` (the margin, which is below zero)
    are places from 0 to WIDTH. `tone` is good where the lower end is not below the margin, bad where it is, else wait."""

    found: MetricDifference
    margin: float | None
    tone: str
    left: float
    right: float
    mean: float
    zero: float
    edge: float | None


@dataclass(frozen=True, slots=True)
class VersionPromotion:
    """A move of a channel to the version. `role` is the one that it has there from then on. `by_run` says that the run made the
    move itself, `now` that it stands."""

    channel: str
    role: str
    revision: int
    at: datetime
    actor: str
    reason: str
    by_run: bool
    now: bool


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    champion: float | None
    challenger: float | None

    @property
    def change(self) -> float | None:
        if self.champion is None or self.challenger is None:
            return None
        return self.challenger - self.champion


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A version that training made. `verified` is of the verdict; `warnings` are what does not fit together. `trusting`:
    whether a policy names keys that could verify it."""

    evidence: VersionAttestations
    id: str
    date: str
    verdict: str
    verified: bool
    because: str
    failed: Sequence[str]
    bar: DifferenceBar | None
    promotions: Sequence[VersionPromotion]
    warnings: Sequence[str]
    trusting: bool = True

    @property
    def version(self) -> str:
        return self.evidence.version

    @property
    def tone(self) -> str:
        """Return good, bad, wait or plain: never good by a claim alone, and no warning if no policy could verify it."""
        tone = TONES[self.verdict]
        return self.claim_tone if tone == "good" and not self.verified else tone

    @property
    def claim_tone(self) -> str:
        """Return the tone of a claim: a warning only if a key could have verified it."""
        return "wait" if self.trusting else "plain"

    @property
    def comparison(self) -> ComparisonDocument | None:
        return self.evidence.comparison.said if self.evidence.comparison else None

    @property
    def made(self) -> InternalParameters:
        """How it was made; empty where no provenance says so."""
        told = self.evidence.provenance
        return told.said.run if told and told.said else InternalParameters()

    @property
    def unit(self) -> str:
        return "epochs" if self.made.recipe == "network" else "trees"

    @property
    def champion(self) -> ComparedVersion | None:
        return self.comparison.champion if self.comparison else None

    @property
    def serves(self) -> Sequence[str]:
        """The channels that name it now, and as what, where it is not the champion."""
        return [
            each.channel if each.role == CHAMPION else f"{each.channel} {each.role}" for each in self.promotions if each.now
        ]

    @property
    def metrics(self) -> Sequence[Metric]:
        """The figures of both, side by side; without a comparison those of the evaluation."""
        if (found := self.comparison) is not None:
            theirs = found.champion.metrics if found.champion else {}
            names = dict.fromkeys([*found.challenger.metrics, *theirs])
            return [Metric(name, theirs.get(name), found.challenger.metrics.get(name)) for name in names]
        told = self.evidence.evaluation
        return [Metric(name, None, value) for name, value in told.said.metrics.items()] if told and told.said else []

    @property
    def dataset(self) -> str:
        """The digest of what it was trained and judged on; empty where nothing says so."""
        told = self.evidence.provenance
        return next((one.sha256 for one in told.said.named("dataset")), "") if told and told.said else ""

    @property
    def claimed(self) -> bool:
        """Whether something that is shown of it is a claim alone."""
        return any(not each.verified for each in self.evidence.statements)


def runs(versions: Iterable[VersionAttestations], channels: Iterable[Channel], *, trusting: bool = True) -> list[TrainingRun]:
    """Return the runs of the versions that training made, in their order; `trusting` as in `Library`."""
    known = list(channels)
    return [replace(_run(each, known), trusting=trusting) for each in versions if _trained(each)]


def slice_bars(run: TrainingRun) -> Sequence[tuple[str, int, DifferenceBar | None]]:
    """What each slice is of, its rows, and the interval of its difference."""
    told = run.evidence.provenance
    margin = told.said.gate.slice_margin if told and told.said else None
    found = run.comparison.slices if run.comparison else []
    return [(f"{one.field} = {one.value}", one.rows, bar(one.difference, margin)) for one in found]


def bar(found: MetricDifference | None, margin: float | None) -> DifferenceBar | None:
    """How an interval is drawn against its margin; None where there is none."""
    if found is None:
        return None
    margin = margin if margin is not None and margin > 0 else None
    low, high = min(found.low, found.high), max(found.low, found.high)
    unit = margin or max(abs(low), abs(high), abs(found.value), 1e-12) / SHORTEST
    most = max(LONGEST * unit, SHORTEST * abs(found.value))
    start, end = max(min(low, -SHORTEST * unit), -most), min(max(high, SHORTEST * unit), most)

    def place(value: float) -> float:
        return round(WIDTH * (min(max(value, start), end) - start) / (end - start), 1)

    tone = "wait" if margin is None else "good" if low >= -margin else "bad"
    edge = None if margin is None else place(-margin)
    return DifferenceBar(found, margin, tone, place(low), place(high), place(found.value), place(0.0), edge)


def _trained(evidence: VersionAttestations) -> bool:
    if evidence.comparison is not None or RUN_VERSION.fullmatch(evidence.version):
        return True
    told = evidence.provenance
    return bool(told and told.said and told.said.build_definition.build_type == TRAINING_BUILD)


def _run(evidence: VersionAttestations, channels: Sequence[Channel]) -> TrainingRun:
    named = RUN_VERSION.fullmatch(evidence.version)
    comparison, provenance = evidence.comparison, evidence.provenance
    said = comparison.said if comparison else None
    told = [said.run if said else "", provenance.said.run.run if provenance and provenance.said else ""]
    ids = [named[4] if named else "", *told]
    id_ = next((each for each in ids if RUN.fullmatch(each)), "")
    margin = provenance.said.gate.margin if provenance and provenance.said else None
    promotions = _promotions(evidence, id_, channels)
    verdict = said.verdict if said else UNREADABLE if comparison or evidence.fault else UNJUDGED
    return TrainingRun(
        evidence,
        id=id_,
        date=_date(evidence.version),
        verdict=verdict,
        verified=comparison is not None and comparison.verified,
        because=_because(evidence),
        failed=[rule.name for rule in said.rules if not rule.passed] if said else [],
        bar=bar(said.difference, margin) if said else None,
        promotions=promotions,
        warnings=[*_contradictions(evidence, id_, told), *_unearned(verdict, promotions)],
    )


def _because(evidence: VersionAttestations) -> str:
    told = evidence.comparison
    if evidence.fault:
        return f"Its attestations cannot be read: {evidence.fault}"
    if told is None:
        attested = " and ".join(each.name for each in evidence.statements)
        return f"Only its {attested} is attested, no comparison." if attested else "Nothing is attested about it."
    if told.said is None:
        return f"Its comparison does not read: {told.fault}"
    failed = [rule.name for rule in told.said.rules if not rule.passed]
    return told.said.because or (f"Failed: {', '.join(failed)}." if failed else "The comparison says no reason.")


def _promotions(evidence: VersionAttestations, id_: str, channels: Iterable[Channel]) -> list[VersionPromotion]:
    """Every move to the version that is known, the newest of each channel first."""
    by_run = re.compile(rf"\brun {id_}\b") if id_ else None
    return [
        VersionPromotion(
            channel=channel.name,
            role=role,
            revision=move.revision,
            at=move.at,
            actor=move.actor,
            reason=move.reason,
            by_run=by_run is not None and by_run.search(move.reason) is not None,
            now=move.revision == channel.revision,
        )
        for channel in channels
        for move in reversed(channel.moves)
        if (role := _role(move, evidence.digest))
    ]


def _role(move: ChannelMove, digest: str) -> str:
    """What a version is in a channel after a move; empty where it is nothing."""
    return CHAMPION if move.champion == digest else next((each.role for each in move.roles if each.digest == digest), "")


def _contradictions(evidence: VersionAttestations, id_: str, told: Sequence[str]) -> Iterator[str]:
    for name, run in zip(("comparison", "provenance"), told, strict=True):
        if run and run != id_:
            yield f"The {name} speaks of run {run}."
    said = evidence.comparison.said if evidence.comparison else None
    if said and said.challenger.digest not in ("", evidence.digest):
        yield f"The comparison judged {said.challenger.digest}, which is not this version."
    for each in evidence.statements:
        if each.fault and each is not evidence.comparison:
            yield f"Its {each.name} does not read: {each.fault}"
        if each.others:
            others = f"{each.others} more statements" if each.others > 1 else "1 more statement"
            yield f"Beside the {each.name} shown there {'are' if each.others > 1 else 'is'} {others} of its type."


def _unearned(verdict: str, promotions: Sequence[VersionPromotion]) -> Iterator[str]:
    if verdict != "passed":
        for each in promotions:
            if each.now:
                yield f"{each.channel} names it, though its verdict is: {verdict}."


def _date(version: str) -> str:
    """The date that a version is called by; empty where it is none."""
    if named := RUN_VERSION.fullmatch(version):
        try:
            return date(int(named[1]), int(named[2]), int(named[3])).isoformat()
        except ValueError:
            return ""
    return ""
