"""The records that a decision rests on, as its entry names them, and whether they suffice to judge again. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from publisher.errors import USAGE, Fatal
from publisher.kafka.partitions import Offsets, Partition, Spans
from publisher.kafka.topics import Bounds
from scorer.rollout.canary_analysis.decision_sample import DecisionSample
from scorer.rollout.controller import log_records
from scorer.rollout.controller.event_log import Rollout
from scorer.rollout.controller.log_records import EntryKind, LogEntry
from scorer.rollout.controller.plan import RolloutPlan
from scorer.settings import Settings

SAME = ("verdict", "why", "rules", "champion", "candidate", "drift", "decisions")
"""What has to be the same, bit for bit."""


@dataclass(frozen=True, slots=True)
class DecisionBasis:
    """What a decision rests on. An entry of an older version of this program does not name all of it.

    Attributes:
        answers: the offsets that were read of scores, dead letters and the shadow's answers.
        records: how many records were there; None: it is not named.
        joined: the ends of the answers whose errors by label were measured; None: no rule asks for labels.
        labels: the ends of the labels.
        label_records: how many labels were there; None: it is not named.
        label_settings: how labels were read, by the names of the settings `labels`; empty: it is not named.
        outputs: the outputs that versions decide on, by digest.
    """

    answers: dict[Partition, Bounds]
    records: Offsets | None = None
    joined: Offsets | None = None
    labels: Offsets = field(default_factory=dict)
    label_records: Offsets | None = None
    label_settings: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, str | None] = field(default_factory=dict)

    def configured(self, settings: Settings) -> Settings:
        """Return the settings with those by which this decision read labels. Raises Fatal (2) if it rests on other topics."""
        if self.label_settings:
            labels = settings.labels.model_validate(self.label_settings)
            settings = settings.model_copy(update={"labels": labels})
        answers = {settings.output.topic, settings.shadow_topic, settings.dead_letter.topic}
        for name, topics, ends in (
            ("output.topic and dead_letter.topic", answers, self.answers.keys()),
            ("labels.topic", {settings.labels.topic}, self.labels.keys()),
        ):
            if others := {topic for topic, _ in ends} - topics:
                what = f"this decision rests on the records of {', '.join(sorted(others))}, which {name} do not name"
                raise Fatal(what, "give the configuration of that time", USAGE)
        return settings


def read_basis(rollout: Rollout, entry: LogEntry) -> DecisionBasis:
    """Return what a decision of a rollout rests on."""
    judgement = entry.judgement or {}
    labelled = judgement.get("labelled")
    read = [each for each in judgement["read"] if labelled is None or not _is_label(each, labelled)]
    named = all("records" in each for each in read)
    starts = _starts(rollout, entry)
    answers = {_at(each): Bounds(each.get("from", starts.get(_at(each), 0)), each["to"]) for each in read}
    records = {_at(each): each["records"] for each in read} if named else None
    outputs = judgement.get("outputs", {})
    if rollout.plan.rules.brier is None:
        return DecisionBasis(answers, records, outputs=outputs)
    if labelled is None:
        topics = {topic for topic, _ in starts}
        labels = {at: bounds.high for at, bounds in answers.items() if at[0] not in topics}
        answers = {at: bounds for at, bounds in answers.items() if at not in labels}
        return DecisionBasis(answers, records, {at: bounds.high for at, bounds in answers.items()}, labels)
    return DecisionBasis(
        answers=answers,
        records=records,
        joined={_at(each): each["to"] for each in labelled["answers"]},
        labels={_at(each): each["to"] for each in labelled["labels"]},
        label_records={_at(each): each["records"] for each in labelled["labels"]},
        label_settings=labelled.get("settings", {}),
        outputs=outputs,
    )


def _at(place: Mapping[str, Any]) -> Partition:
    return place["topic"], place["partition"]


def _is_label(place: Mapping[str, Any], labelled: Mapping[str, Any]) -> bool:
    return any(_at(each) == _at(place) for each in labelled["labels"])


def _starts(rollout: Rollout, entry: LogEntry) -> Offsets:
    """Return where the answers of the step begin that an entry decides."""
    moves = [each for each in rollout.log if each.seq < entry.seq and each.kind is EntryKind.MOVED]
    return log_records.from_logged(moves[-1].starts) if moves else {}


def removed_records(basis: DecisionBasis, kept: Spans) -> list[str]:
    """Return which answers a decision rests on that the topics do not have any longer, a line each."""
    lines = []
    for (topic, number), (low, high) in basis.answers.items():
        first, end = kept[topic, number]
        if low < first and low < high:
            lines.append(f"{topic}[{number}] begins at {first} by now, and it rests on the records from {low} on")
        elif high > end:
            lines.append(f"{topic}[{number}] ends at {end}, and it rests on the records up to {high}: was the topic recreated?")
    return lines


def missing_records(told: Mapping[Partition, int] | None, found: Mapping[Partition, int], what: str) -> list[str]:
    """Return how many of the records that a decision rests on are left, a line for each topic that lacks some."""
    lines = []
    for topic in sorted({topic for topic, _ in told or ()}):
        counts = [(count, found.get(at, 0)) for at, count in (told or {}).items() if at[0] == topic]
        if any(there < count for count, there in counts):
            before, now = (sum(column) for column in zip(*counts, strict=True))
            lines.append(
                f"{topic} has {now:,} of the {before:,} {what} that it rests on: retention or compaction has removed others"
            )
    return lines


def uncertainties(basis: DecisionBasis, told: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return why a judgement that differs may be right all the same, a line each."""
    lines = []
    if basis.joined is not None and basis.label_records is None:
        lines.append("its entry does not name the answers and labels that its sums by label rest on")
    if crowded := max(each.get("dropped", {}).get("crowded", 0) for each in (told, found)):
        lines.append(
            f"{crowded:,} answers were dropped because too many waited, and which these are depends on the pace of reading"
        )
    return lines


def obstacles(plan: RolloutPlan, sample: DecisionSample, told: Sequence[str]) -> list[str]:
    """Return what kept the candidate from passing: as it was told, except that PSI is measured again."""
    return [*(each for each in told if not each.startswith("psi: ")), *plan.rules.margins().obstacles(sample)]


def differences(told: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is not the same in two judgements, a line each."""
    for name in SAME:
        if told.get(name) != found.get(name):
            yield f"{name}: {told.get(name)} then, {found.get(name)} now"
