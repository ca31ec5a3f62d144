"""The records that a logged decision is based on, and whether the records suffice to repeat the decision. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from publisher.errors import USAGE, Fatal
from publisher.kafka.partitions import Offsets, Partition, Spans, in_ranges
from publisher.kafka.topics import Bounds
from scorer.rollout.canary_analysis.decision_sample import DecisionSample
from scorer.rollout.controller import log_records
from scorer.rollout.controller.log_records import EntryKind, LogEntry
from scorer.rollout.controller.plan import RolloutPlan
from scorer.rollout.controller.rollout_state import Rollout
from scorer.settings import Settings

SAME = ("verdict", "why", "rules", "champion", "candidate", "drift", "decisions")
"""The keys of a report whose values must be equal in the recorded and in the repeated analysis."""


@dataclass(frozen=True, slots=True)
class DecisionBasis:
    """The records that a decision is based on, as its log entry names them.

    Log entries of older program versions do not contain all of these values.

    Attributes:
        answers: For each partition of scores, dead letters and shadow answers, the offset range that was read.
        records: The number of records in each range of `answers`; None if the entry does not contain it.
        joined: The offset up to which answers were read before they were compared with labels, by partition; None if no rule
            needs labels.
        labels: The offset after the last label that was read, by partition.
        label_records: The number of labels that were read, by partition; None if the entry does not contain it.
        label_settings: The section `labels` of the settings at the time of the decision; empty if the entry does not
            contain it.
        outputs: The name of the output that determines a version's decision, by the version's digest; None if the name is
            unknown. Only versions with several named outputs are included.
    """

    answers: dict[Partition, Bounds]
    records: Offsets | None = None
    joined: Offsets | None = None
    labels: Offsets = field(default_factory=dict)
    label_records: Offsets | None = None
    label_settings: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, str | None] = field(default_factory=dict)

    def configured(self, settings: Settings) -> Settings:
        """Return `settings` with the section `labels` that applied at the time of the decision.

        Raises:
            Fatal: With code 2 if the decision is based on topics that `settings` do not name.
        """
        if self.label_settings:
            labels = settings.labels.model_validate(self.label_settings)
            settings = settings.model_copy(update={"labels": labels})
        answers = {settings.output.topic, settings.shadow_topic, settings.dead_letter.topic}
        for name, topics, ends in (
            ("output.topic and dead_letter.topic", answers, self.answers.keys()),
            ("labels.topic", {settings.labels.topic}, self.labels.keys()),
        ):
            if others := {topic for topic, _ in ends} - topics:
                topics_read = ", ".join(sorted(others))
                message = f"this decision is based on records of {topics_read}, but {name} in the configuration differ"
                raise Fatal(message, "use the configuration with which the decision was made", USAGE)
        return settings


def read_basis(rollout: Rollout, entry: LogEntry) -> DecisionBasis:
    """Return the basis of a rollout's decision, read from its log entry."""
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
        labels = {partition: bounds.high for partition, bounds in answers.items() if partition[0] not in topics}
        answers = {partition: bounds for partition, bounds in answers.items() if partition not in labels}
        return DecisionBasis(answers, records, {partition: bounds.high for partition, bounds in answers.items()}, labels)
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
    """Return the offsets at which the answers of the decided step start."""
    moves = [each for each in rollout.log if each.seq < entry.seq and each.kind is EntryKind.MOVED]
    return log_records.from_logged(moves[-1].starts) if moves else {}


def removed_records(basis: DecisionBasis, retained: Spans) -> list[str]:
    """Return a line for each partition that no longer has all answers of the basis; empty if no answer is missing.

    `retained` has the offset range that each partition has now.
    """
    lines = []
    for (topic, number), (low, high) in basis.answers.items():
        first, end = retained[topic, number]
        if low < first and low < high:
            lines.append(f"{topic}[{number}] now starts at {first}, and the decision is based on records from {low} on")
        elif high > end:
            lines.append(
                f"{topic}[{number}] ends at {end}, and the decision is based on records up to {high}: was the topic recreated?"
            )
    return lines


def missing_records(expected: Mapping[Partition, int] | None, available: Mapping[Partition, int], noun: str) -> list[str]:
    """Return a line for each topic that has fewer records now than at the time of the decision.

    A line has the number of records at the time of the decision, and the number now.

    Args:
        expected: The number of records at the time of the decision, by partition; None if it is unknown.
        available: The number of records now, by partition.
        noun: The name of these records in the lines, such as "labels".
    """
    lines = []
    for topic in sorted({topic for topic, _ in expected or ()}):
        counts = [
            (count, available.get(partition, 0)) for partition, count in (expected or {}).items() if partition[0] == topic
        ]
        if any(left < count for count, left in counts):
            total_before, total_now = (sum(column) for column in zip(*counts, strict=True))
            lines.append(
                f"{topic} has {total_now:,} of the {total_before:,} {noun} that the decision is based on: retention or "
                "compaction has removed the others"
            )
    return lines


def uncertainties(
    basis: DecisionBasis, recorded: Mapping[str, Any], repeated: Mapping[str, Any], scattered: Sequence[Partition]
) -> list[str]:
    """Return the reasons why the repeated analysis may differ although the decision was correct, one line each.

    Args:
        basis: The records that the decision is based on.
        recorded: The report in the log entry.
        repeated: The report of the repeated analysis.
        scattered: The source partitions whose answers are spread over several partitions of one topic.
    """
    lines = []
    if basis.joined is not None and basis.label_records is None:
        lines.append("the entry does not name the answers and labels that were compared")
    if crowded := max(report.get("dropped", {}).get("crowded", 0) for report in (recorded, repeated)):
        lines.append(
            f"{crowded:,} answers were dropped because too many waited, and which answers depends on the pace of reading"
        )
    if scattered:
        lines.append(
            f"several partitions of one topic have answers to events of {in_ranges(scattered)}, and which of two answers to "
            "one event is compared depends on the order of reading"
        )
    return lines


def obstacles(plan: RolloutPlan, sample: DecisionSample, recorded: Sequence[str]) -> list[str]:
    """Return the reasons that prevent a promotion in the repeated analysis.

    These are the recorded reasons, except that the reason about the PSI is computed again from `sample`.
    """
    psi, _ = sample.drift()
    return [*(line for line in recorded if not line.startswith("psi: ")), *plan.rules.margins().obstacles(psi)]


def comparable_reasons(recorded: Mapping[str, Any], reasons: Mapping[str, str]) -> dict[str, str]:
    """Return the reasons why rules have no pairs in the repeated analysis.

    Rules without such a reason in the log entry are left out.

    Args:
        recorded: The report in the log entry.
        reasons: The reasons of the repeated analysis, by the name of the rule.
    """
    # Older program versions recorded no reason for most rules, and a missing text must not count as a difference.
    named = {rule["rule"] for rule in recorded.get("rules", ()) if "reason" in rule}
    return {name: reason for name, reason in reasons.items() if name in named}


def differences(recorded: Mapping[str, Any], repeated: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each key in SAME with different values in the recorded and the repeated analysis."""
    for name in SAME:
        if recorded.get(name) != repeated.get(name):
            yield f"{name}: {recorded.get(name)} then, {repeated.get(name)} now"
