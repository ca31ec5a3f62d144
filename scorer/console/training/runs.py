"""Training runs for display: the records of a run, the attested documents of its version, and its channel moves. Pure.

A verdict without the signature of a trusted key is shown as a claim. The records of the topic of runs are never signed.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from model_registry.channels.history import ChannelMove
from model_registry.channels.roles import CHAMPION
from model_registry.signing.predicates import COMPARISON, EVALUATION
from scorer.console.state import Channel
from scorer.console.training.attestations import RUN_VERSION, AttestedDocument, VersionAttestations
from scorer.console.training.documents import (
    TRAINING_BUILD,
    ComparedVersion,
    ComparisonDocument,
    CoverageFigures,
    InternalParameters,
    MetricDifference,
)
from scorer.console.training.run_history import FAILED, INTERRUPTED, RUNNING, STOPPED, UNENDED, RecordedRun, RunHistory

WIDTH = 1_000.0  # of a bar, in the units of its SVG
# limits of the range of a bar, as multiples of the margin
SHORTEST = 1.5
LONGEST = 4.0
RUN = re.compile(r"[0-9a-f]{12}")
ERRORS = frozenset(
    {"log_loss", "rmse", "mae", "quantile_loss", "interval_score"}
)  # the metrics of the gate of which a smaller value is better
UNREADABLE = "unreadable"
UNJUDGED = "not judged"
ENDED = "ended"
RECORDED = "recorded by the run, not attested"
TONES = {
    RUNNING: "running",
    FAILED: "bad",
    INTERRUPTED: "wait",
    STOPPED: "wait",
    "passed": "good",
    "refused": "bad",
    "same": "wait",
    "promoted": "plain",
    "rollout": "plain",
    "nothing-new": "plain",
    "too-few-labels": "wait",
    ENDED: "plain",
    UNREADABLE: "bad",
    UNJUDGED: "wait",
}
"""The name of the colour of each verdict and state. Pages list verdicts in this order."""


@dataclass(frozen=True, slots=True)
class DifferenceBar:
    """The confidence interval of a metric's difference as a bar; x coordinates are from 0 to WIDTH.

    Attributes:
        difference: The difference with its interval.
        limit: The bound, such as -0.002, that the worse end of the interval must not cross; None without one.
        tone: The name of the bar's colour: `good` if the worse end of the interval is within the limit, `bad` if it is not, and
            `wait` without a limit.
        left: The x coordinate of the lower bound.
        right: The x coordinate of the upper bound.
        mean: The x coordinate of the difference.
        zero: The x coordinate of 0.
        edge: The x coordinate of the limit; None without one.
    """

    difference: MetricDifference
    limit: float | None
    tone: str
    left: float
    right: float
    mean: float
    zero: float
    edge: float | None


@dataclass(frozen=True, slots=True)
class VersionPromotion:
    """A channel move that gives a version a role, such as champion or canary.

    Attributes:
        by_run: Whether the training run itself made the move.
        now: Whether the move created the channel's current revision, so that the version has the role now.
    """

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
    """The values of a metric for champion and challenger; None if a version has no value."""

    name: str
    champion: float | None
    challenger: float | None

    @property
    def change(self) -> float | None:
        """The challenger's value minus the champion's; None if either value is missing."""
        if self.champion is None or self.challenger is None:
            return None
        return self.challenger - self.champion


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A training run for display, with the version that it produced.

    Attributes:
        attestations: The attested documents of the version.
        verified: Whether a trusted key signed the verdict.
        because: The reason for the verdict, as a sentence.
        failed: The names of the rules that did not pass.
        promotions: The channel moves that give the version a role.
        warnings: Contradictions between the documents and the channels.
        trusting: Whether a policy lists trusted keys, so that a verdict can be verified.
        recorded: The records of the run; None if the topic of runs has none. They change while the run is running, so they may
            be read only under the lock of the state, and not in a template.
        parameters: The recipe, seed and search, from the records; None without records.
        seconds: The time that the run's processes have worked, in seconds, from the records; None without records.
        state: The state or outcome of the run, from the records; empty without records.
        attested: Whether the documents come from the registry. If False, they come from the records of the run.
    """

    attestations: VersionAttestations
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
    recorded: RecordedRun | None = None
    parameters: InternalParameters | None = None
    seconds: float | None = None
    key: str = ""
    state: str = ""
    attested: bool = True

    @property
    def version(self) -> str:
        """The name of the version; empty if the run has none yet."""
        return self.attestations.version

    @property
    def name(self) -> str:
        """The name under which the page of the run is found: its version, or else its key."""
        return self.version or self.key

    @property
    def unended(self) -> bool:
        """Whether the run has no outcome yet, because it is running or did not end."""
        return self.state in UNENDED

    @property
    def tone(self) -> str:
        """The name of the verdict's colour: good, bad, wait or plain. It is never good for an unverified verdict."""
        tone = TONES[self.verdict]
        return self.claim_tone if tone == "good" and not self.verified else tone

    @property
    def claim_tone(self) -> str:
        """The name of the colour of an unverified verdict: wait if the policy lists trusted keys, else plain."""
        return "wait" if self.trusting else "plain"

    @property
    def comparison(self) -> ComparisonDocument | None:
        """The comparison; None if it is not attested or is unreadable."""
        return self.attestations.comparison.document if self.attestations.comparison else None

    @property
    def training(self) -> InternalParameters:
        """The recipe, seed, parameters and search, from the provenance or else from the records; empty without both."""
        provenance = self.attestations.provenance
        if provenance and provenance.document:
            return provenance.document.run
        return self.parameters or InternalParameters()

    @property
    def unit(self) -> str:
        """The unit of a training budget: epochs, trees, or the steps of a user-defined recipe."""
        return {"network": "epochs", "own": "steps"}.get(self.training.recipe, "trees")

    @property
    def champion(self) -> ComparedVersion | None:
        """The champion in the comparison; None without a comparison or a champion."""
        return self.comparison.champion if self.comparison else None

    @property
    def serves(self) -> Sequence[str]:
        """The channels that now name the version, as texts. If the role is not champion, the text also contains the role."""
        return [
            each.channel if each.role == CHAMPION else f"{each.channel} {each.role}" for each in self.promotions if each.now
        ]

    @property
    def metrics(self) -> Sequence[Metric]:
        """The metrics of champion and challenger in the comparison. Without a comparison, the metrics of the evaluation."""
        if (comparison := self.comparison) is not None:
            champion = comparison.champion.metrics if comparison.champion else {}
            challenger = comparison.challenger.metrics
            names = dict.fromkeys([*challenger, *champion])
            return [Metric(name, champion.get(name), challenger.get(name)) for name in names]
        evaluation = self.attestations.evaluation
        if evaluation is None or evaluation.document is None:
            return []
        return [Metric(name, None, value) for name, value in evaluation.document.metrics.items()]

    @property
    def coverages(self) -> Sequence[tuple[str, CoverageFigures]]:
        """The coverage of the intervals of champion and challenger by role, from the same document as the metrics."""
        if (comparison := self.comparison) is not None:
            sides = (("champion", comparison.champion), ("challenger", comparison.challenger))
            return [(role, side.interval_coverage) for role, side in sides if side and side.interval_coverage]
        evaluation = self.attestations.evaluation
        coverage = evaluation.document.interval_coverage if evaluation and evaluation.document else None
        return [("challenger", coverage)] if coverage else []

    @property
    def dataset(self) -> str:
        """The digest of the run's dataset; empty if it is not attested."""
        provenance = self.attestations.provenance
        if provenance is None or provenance.document is None:
            return ""
        return next((dependency.sha256 for dependency in provenance.document.named("dataset")), "")

    @property
    def claimed(self) -> bool:
        """Whether at least one document of the version is not signed by a trusted key."""
        return any(not each.verified for each in self.attestations.statements)


def runs(versions: Iterable[VersionAttestations], channels: Iterable[Channel], *, trusting: bool = True) -> list[TrainingRun]:
    """Return the training runs that produced these versions, in the order of the versions.

    Other versions are omitted. `trusting` states whether the policy lists trusted keys.
    """
    all_channels = list(channels)
    return [replace(_run(each, all_channels), trusting=trusting) for each in versions if _trained(each)]


def with_records(attested: Sequence[TrainingRun], history: RunHistory, now: float) -> list[TrainingRun]:
    """Merge attested and recorded runs into one list, newest first. `now` is in Unix seconds.

    Runs without records are sorted by date, because their times are unknown. Runs of the same date keep their order.
    """
    without_records = {run.version: run for run in attested}
    rows = []
    for recorded in history.newest_first():
        run = without_records.pop(recorded.version, None) if recorded.version else None
        state = recorded.state(now)
        if run is None:
            run = _recorded_run(recorded, state if state in TONES else ENDED)
        started = recorded.started
        parameters = InternalParameters(recorded.id, started.seed, started.recipe, {}, recorded.search) if started else None
        rows.append(
            replace(run, recorded=recorded, parameters=parameters, seconds=recorded.seconds, key=recorded.key, state=state)
        )
    return sorted([*rows, *without_records.values()], key=_began_ms, reverse=True)


def _began_ms(run: TrainingRun) -> float:
    """Return when the run began, in Unix ms.

    For a run without records this is the date in the name of its version, or 0 without a date.
    """
    if run.recorded:
        return run.recorded.began_ms
    return 1_000 * datetime.fromisoformat(run.date).replace(tzinfo=UTC).timestamp() if run.date else 0.0


def _recorded_run(recorded: RecordedRun, state: str) -> TrainingRun:
    comparison = recorded.comparison
    evaluation = recorded.evaluation
    attestations = VersionAttestations(
        recorded.version,
        recorded.digest,
        evaluation=AttestedDocument(EVALUATION, evaluation, unverified=RECORDED) if evaluation else None,
        comparison=AttestedDocument(COMPARISON, comparison, unverified=RECORDED) if comparison else None,
    )
    return TrainingRun(
        attestations,
        id=recorded.id,
        date=_date(recorded.version),
        verdict=state,
        verified=False,
        because=recorded.because or _activity(recorded, state),
        failed=[rule.name for rule in comparison.rules if not rule.passed] if comparison else [],
        bar=_difference_bar(comparison, None) if comparison else None,
        promotions=[],
        warnings=[],
        attested=False,
    )


def _activity(recorded: RecordedRun, state: str) -> str:
    step = f"in the step {recorded.step}" if recorded.step else "before its first step"
    if state == INTERRUPTED:
        return f"Its process ended {step} without a report. The next command run continues it."
    return f"It is {step}." if state == RUNNING else ""


def slice_bars(run: TrainingRun) -> Sequence[tuple[str, int, DifferenceBar | None]]:
    """Return the name, the number of rows and the interval of each slice in the comparison."""
    provenance = run.attestations.provenance
    margin = provenance.document.gate.slice_margin if provenance and provenance.document else None
    comparison = run.comparison
    if comparison is None:
        return []
    errors = comparison.metric in ERRORS
    sign = 1.0 if errors else -1.0
    limits = [
        None if margin is None else sign * margin * (1.0 if each.scale is None else each.scale) for each in comparison.slices
    ]
    return [
        (f"{each.field} = {each.value}", each.rows, bar(each.difference, limit, errors=errors))
        for each, limit in zip(comparison.slices, limits, strict=True)
    ]


def _difference_bar(comparison: ComparisonDocument, margin: float | None) -> DifferenceBar | None:
    """Return the difference of the compared metric as a bar; None without a difference.

    The limit of the bar is the bound of the rule for this metric. Without such a rule it is derived from `margin`.
    """
    errors = comparison.metric in ERRORS
    bounds = (rule.bound for rule in comparison.rules if rule.name == comparison.metric)
    limit = next(bounds, None if margin is None else margin if errors else -margin)
    return bar(comparison.difference, limit, errors=errors)


def bar(difference: MetricDifference | None, limit: float | None, *, errors: bool = False) -> DifferenceBar | None:
    """Return the difference with its limit as a bar; None without a difference.

    A larger difference is better. If `errors` is True, the metric measures errors, and a smaller difference is better.
    """
    if difference is None:
        return None
    low = min(difference.low, difference.high)
    high = max(difference.low, difference.high)
    unit = abs(limit or 0.0) or max(abs(low), abs(high), abs(difference.value), 1e-12) / SHORTEST
    most = max(LONGEST * unit, SHORTEST * abs(difference.value))
    start = max(min(low, -SHORTEST * unit), -most)
    end = min(max(high, SHORTEST * unit), most)

    def x(value: float) -> float:
        return round(WIDTH * (min(max(value, start), end) - start) / (end - start), 1)

    tone = "wait"
    if limit is not None:
        within = high <= limit if errors else low >= limit
        tone = "good" if within else "bad"
    edge = None if limit is None else x(limit)
    return DifferenceBar(difference, limit, tone, x(low), x(high), x(difference.value), x(0.0), edge)


def _trained(attestations: VersionAttestations) -> bool:
    if attestations.comparison is not None or RUN_VERSION.fullmatch(attestations.version):
        return True
    provenance = attestations.provenance
    return bool(provenance and provenance.document and provenance.document.build_definition.build_type == TRAINING_BUILD)


def _run(attestations: VersionAttestations, channels: Sequence[Channel]) -> TrainingRun:
    named = RUN_VERSION.fullmatch(attestations.version)
    comparison = attestations.comparison
    provenance = attestations.provenance
    compared = comparison.document if comparison else None
    origin = provenance.document if provenance else None
    documented = [compared.run if compared else "", origin.run.run if origin else ""]
    ids = [named[4] if named else "", *documented]
    id_ = next((each for each in ids if RUN.fullmatch(each)), "")
    margin = origin.gate.margin if origin else None
    promotions = _promotions(attestations, id_, channels)
    if compared is not None:
        verdict: str = compared.verdict
    else:
        verdict = UNREADABLE if comparison or attestations.fault else UNJUDGED
    return TrainingRun(
        attestations,
        id=id_,
        date=_date(attestations.version),
        verdict=verdict,
        verified=comparison is not None and comparison.verified,
        because=_because(attestations),
        failed=[rule.name for rule in compared.rules if not rule.passed] if compared else [],
        bar=_difference_bar(compared, margin) if compared else None,
        promotions=promotions,
        warnings=[*_contradictions(attestations, id_, documented), *_unearned(verdict, promotions)],
    )


def _because(attestations: VersionAttestations) -> str:
    comparison = attestations.comparison
    if attestations.fault:
        return f"Its attestations cannot be read: {attestations.fault}"
    if comparison is None:
        attested = " and ".join(each.name for each in attestations.statements)
        return f"Only its {attested} is attested, and no comparison." if attested else "It has no attestations."
    if comparison.document is None:
        return f"Its comparison is unreadable: {comparison.fault}"
    failed = [rule.name for rule in comparison.document.rules if not rule.passed]
    return comparison.document.because or (f"Failed: {', '.join(failed)}." if failed else "The comparison has no reason.")


def _promotions(attestations: VersionAttestations, id_: str, channels: Iterable[Channel]) -> list[VersionPromotion]:
    """Return the channel moves that give the version a role, channel by channel, each channel's newest move first.

    `id_` is the id of the training run. A move was made by the run itself if its reason contains this id.
    """
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
        if (role := _role(move, attestations.digest))
    ]


def _role(move: ChannelMove, digest: str) -> str:
    """Return the role of the version with this digest after a move; empty if it has no role."""
    return CHAMPION if move.champion == digest else next((each.role for each in move.roles if each.digest == digest), "")


def _contradictions(attestations: VersionAttestations, id_: str, documented: Sequence[str]) -> Iterator[str]:
    for name, run in zip(("comparison", "provenance"), documented, strict=True):
        if run and run != id_:
            yield f"The {name} is from another run, {run}."
    compared = attestations.comparison.document if attestations.comparison else None
    if compared and compared.challenger.digest not in ("", attestations.digest):
        yield f"The comparison is of {compared.challenger.digest}, which is not this version."
    for each in attestations.statements:
        if each.fault and each is not attestations.comparison:
            yield f"Its {each.name} is unreadable: {each.fault}"
        if each.others:
            yield f"The {each.name} shown is one of {each.others + 1} attestations of its type."


def _unearned(verdict: str, promotions: Sequence[VersionPromotion]) -> Iterator[str]:
    if verdict != "passed":
        for each in promotions:
            if each.now:
                yield f"{each.channel} names it, but its verdict is: {verdict}."


def _date(version: str) -> str:
    """Return the date in the name of a version as ISO 8601; empty if there is none."""
    if named := RUN_VERSION.fullmatch(version):
        try:
            return date(int(named[1]), int(named[2]), int(named[3])).isoformat()
        except ValueError:
            return ""
    return ""
