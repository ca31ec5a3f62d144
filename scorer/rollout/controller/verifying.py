"""Whether a decision follows from the topics: its pairs are read again, and judged again."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from model_registry.channels import channel
from model_registry.oci import digests
from publisher.errors import FINDING, USAGE, Fatal
from publisher.kafka.partitions import Offsets, Spans
from publisher.kafka.reader import TopicReader
from publisher.kafka.topics import Bounds
from scorer.rollout.controller import entries
from scorer.rollout.controller.entries import Entry, Kind
from scorer.rollout.controller.judging import again, judged, sums_by_label
from scorer.rollout.controller.ledger import Rollout
from scorer.rollout.judgement.labelled import LabelledSums
from scorer.servables.source import open_source
from scorer.settings import Settings

SAME = ("verdict", "why", "rules", "champion", "candidate", "drift", "decisions")
"""What has to be the same, bit for bit."""


@dataclass(frozen=True, slots=True)
class Verification:
    """`differs` names what is not the same, a line each. `evidence` is the revision whose registry entry carries the decision;
    None: it moved nothing."""

    entry: Entry
    differs: tuple[str, ...]
    pairs: int
    evidence: int | None

    def to_dict(self) -> dict[str, Any]:
        said = {"rollout": self.entry.rollout, "seq": self.entry.seq, "kind": self.entry.kind, "verdict": self.entry.verdict}
        return {**said, "same": not self.differs, "differs": list(self.differs), "pairs": self.pairs, "evidence": self.evidence}


def verify(settings: Settings, rollout: Rollout, seq: int) -> Verification:
    """Of the entry `seq` of a rollout. Raises Fatal: 2 where there is none that rests on pairs, 1 where they are gone."""
    entry = next((each for each in rollout.log if each.seq == seq), None)
    if entry is None or entry.judgement is None:
        known = ", ".join(str(each.seq) for each in rollout.log if each.judgement is not None) or "none"
        told = "is no entry" if entry is None else f"({entry.kind}: {'; '.join(entry.why)}) rests on no pairs"
        raise Fatal(f"{seq} of {rollout.id} {told}", f"entries that rest on pairs: {known}", USAGE)
    basis = _basis(settings, rollout, entry.judgement)
    stretch = _stretch(settings, rollout, entry, basis.answers)
    with closing(again(settings, rollout, stretch, _sums(settings, rollout, stretch, basis))) as watch:
        found = watch.judged(rollout.rivals, judged(rollout.plan, watch, entry.obstacles)).to_dict()
        pairs = max((each["pairs"] for each in found["rules"]), default=0)
    return Verification(entry, tuple(_differences(entry.judgement, found)), pairs, _evidence(settings, entry))


@dataclass(frozen=True, slots=True)
class Basis:
    """The offsets that a decision names: the ends of the `answers` and of the `labels`.

    `joined` are the ends of the answers whose errors by label were measured, None if no rule asks for labels; `records` is how
    many labels were read. An entry that was written before these were kept has neither: its sums may be older than its ends.
    """

    answers: Offsets
    labels: Offsets
    joined: Offsets | None
    records: int | None


def _basis(settings: Settings, rollout: Rollout, judgement: dict[str, Any]) -> Basis:
    """Return the offsets that a judgement names. Raises Fatal (2) if its labels are those of another topic."""
    ends = _ends(judgement["read"])
    if rollout.plan.rules.brier is None:
        return Basis(ends, {}, None, None)
    if (labelled := judgement.get("labelled")) is None:
        labels = {at: end for at, end in ends.items() if at[0] == settings.labels.topic}
        answers = {at: end for at, end in ends.items() if at not in labels}
        return Basis(answers, labels, answers, None)
    labels = _ends(labelled["labels"])
    for topic in {topic for topic, _ in labels} - {settings.labels.topic}:
        what = f"this decision rests on the labels of {topic!r}, and labels.topic is {settings.labels.topic!r}"
        raise Fatal(what, f"--set labels.topic={topic}, with the labels.id and labels.value of that time", USAGE)
    answers = {at: end for at, end in ends.items() if at not in labels}
    return Basis(answers, labels, _ends(labelled["answers"]), sum(each["records"] for each in labelled["labels"]))


def _ends(places: list[dict[str, Any]]) -> Offsets:
    return {(each["topic"], each["partition"]): each["to"] for each in places}


def _sums(settings: Settings, rollout: Rollout, stretch: Spans, basis: Basis) -> LabelledSums | None:
    """Measure the errors by label again, of the answers and the labels that the decision rests on.

    Raises:
        Fatal: with code 1 if labels were removed since.
    """
    if basis.joined is None:
        return None
    ends = {at: max(low, min(high, basis.joined.get(at, low))) for at, (low, high) in stretch.items()}
    sums = sums_by_label(settings, rollout, {at: Bounds(low, ends[at]) for at, (low, _) in stretch.items()}, basis.labels)
    if basis.records is not None and (found := sum(sums.records.values())) < basis.records:
        what = f"{settings.labels.topic} has {found:,} of the {basis.records:,} labels that this decision rests on"
        raise Fatal(what, "nothing can be done: retention or compaction has removed the others", FINDING)
    return sums if basis.records is not None else replace(sums, reason="")


def _stretch(settings: Settings, rollout: Rollout, entry: Entry, ends: Offsets) -> dict[tuple[str, int], Bounds]:
    starts: Offsets = {}
    for each in rollout.log:
        if each.seq < entry.seq and each.kind is Kind.MOVED:
            starts = entries.offsets(each.starts)
    kept = TopicReader(settings.kafka, f"{settings.name}.rollout").earliest(ends)
    stretch = {at: Bounds(starts.get(at, 0), end) for at, end in ends.items()}
    for (topic, number), bounds in stretch.items():
        if bounds.low < (low := kept[topic, number]) and bounds.low < bounds.high:
            told = f"{topic}[{number}] begins at {low} by now, and this decision rests on what stood from {bounds.low} on"
            raise Fatal(told, "nothing can be done: retention has taken it", FINDING)
    return stretch


def _differences(told: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    for name in SAME:
        if told.get(name) != found.get(name):
            yield f"{name}: {told.get(name)} then, {found.get(name)} now"


def _evidence(settings: Settings, entry: Entry) -> int | None:
    """The revision that the registry keeps this decision with. Raises RegistryError."""
    if entry.move is None:
        return None
    digest = digests.of_bytes(entries.encode(entry))
    moves = channel.history(open_source(settings), settings.model.tag, entry.move.expects)
    return next((move.revision for move in moves if move.evidence == digest), None)
