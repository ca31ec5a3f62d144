"""Whether a decision follows from the topics: its records are read again, and judged again."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any

from model_registry.channels import channel
from model_registry.oci import digests
from publisher.errors import FINDING, USAGE, Fatal
from publisher.kafka.partitions import Spans
from publisher.kafka.reader import TopicReader
from publisher.kafka.topics import Bounds
from publisher.runtime.time_range import ALWAYS
from scorer.models.registry_access import open_source
from scorer.rollout.canary_analysis.analyzer import CanaryAnalyzer
from scorer.rollout.canary_analysis.labelled_pairs import LabelledSums
from scorer.rollout.controller import log_records
from scorer.rollout.controller.analysis_step import evaluate
from scorer.rollout.controller.decision_basis import (
    DecisionBasis,
    differences,
    missing_records,
    obstacles,
    read_basis,
    removed_records,
    uncertainties,
)
from scorer.rollout.controller.event_log import Rollout
from scorer.rollout.controller.log_records import LogEntry
from scorer.settings import Settings


@dataclass(frozen=True, slots=True)
class Verification:
    """`differs` names what is not the same, a line each. `evidence` is the revision whose registry entry carries the decision;
    None: it moved nothing."""

    entry: LogEntry
    differs: tuple[str, ...]
    pairs: int
    evidence: int | None

    def to_dict(self) -> dict[str, Any]:
        said = {"rollout": self.entry.rollout, "seq": self.entry.seq, "kind": self.entry.kind, "verdict": self.entry.verdict}
        return {**said, "same": not self.differs, "differs": list(self.differs), "pairs": self.pairs, "evidence": self.evidence}


def verify(settings: Settings, rollout: Rollout, seq: int) -> Verification:
    """Judge again what the entry `seq` of a rollout rests on.

    Raises:
        Fatal: with code 2 if there is no such entry, or it rests on no pairs or on other topics than those of the settings;
            with code 1 if it cannot be verified, because records were removed or because it does not name what it rests on.
    """
    entry = next((each for each in rollout.log if each.seq == seq), None)
    if entry is None or entry.judgement is None:
        known = ", ".join(str(each.seq) for each in rollout.log if each.judgement is not None) or "none"
        told = "is no entry" if entry is None else f"({entry.kind}: {'; '.join(entry.why)}) rests on no pairs"
        raise Fatal(f"{seq} of {rollout.id} {told}", f"entries that rest on pairs: {known}", USAGE)
    basis = read_basis(rollout, entry)
    settings = basis.configured(settings)
    _reject(removed_records(basis, TopicReader(settings.kafka, f"{settings.name}.rollout").spans(list(basis.answers))))
    sums = _sums(settings, rollout, basis)
    with closing(_again(settings, rollout, basis, basis.answers, sums)) as watch:
        _reject(missing_records(basis.records, watch.records, "records"))
        verdict = evaluate(rollout.plan, watch, obstacles(rollout.plan, watch.sample, entry.obstacles))
        found = watch.judged(rollout.rivals, verdict).to_dict()
    differs = tuple(differences(entry.judgement, found))
    if differs:
        _reject(uncertainties(basis, entry.judgement, found))
    pairs = max((each["pairs"] for each in found["rules"]), default=0)
    return Verification(entry, differs, pairs, _evidence(settings, entry))


def _reject(why: Sequence[str]) -> None:
    """Raise Fatal (1) if there is a reason why a decision cannot be verified."""
    if why:
        raise Fatal(f"this decision cannot be verified: {'; '.join(why)}", "nothing can be done", FINDING)


def _sums(settings: Settings, rollout: Rollout, basis: DecisionBasis) -> LabelledSums | None:
    """Measure the errors by label again, of the answers and the labels that the decision rests on. Raises Fatal (1) if labels
    were removed since."""
    if basis.joined is None:
        return None
    stretch = {at: Bounds(low, max(low, min(high, basis.joined.get(at, low)))) for at, (low, high) in basis.answers.items()}
    with closing(_again(settings, rollout, basis, stretch, labels=True)) as watch:
        sums = watch.labelled_sums(basis.labels)
    _reject(missing_records(basis.label_records, sums.records, "labels"))
    return sums if basis.label_records is not None else replace(sums, reason="")


def _again(
    settings: Settings,
    rollout: Rollout,
    basis: DecisionBasis,
    stretch: Spans,
    sums: LabelledSums | None = None,
    *,
    labels: bool = False,
) -> CanaryAnalyzer:
    """Return a watch that has read exactly this stretch; the caller closes it. Raises Fatal if the answers cannot be read."""
    watch = CanaryAnalyzer(settings, rollout.rivals.contest, ALWAYS, stretch, labels=labels, sums=sums, outputs=basis.outputs)
    with ExitStack() as undo:
        undo.callback(watch.close)
        for _ in watch.to_end():
            pass
        undo.pop_all()
    return watch


def _evidence(settings: Settings, entry: LogEntry) -> int | None:
    """The revision that the registry keeps this decision with. Raises RegistryError."""
    if entry.move is None:
        return None
    digest = digests.from_bytes(log_records.encode(entry))
    moves = channel.history(open_source(settings), settings.model.tag, entry.move.expects)
    return next((move.revision for move in moves if move.evidence == digest), None)
