"""Verify a logged decision: read its records again, repeat the analysis, and compare the results."""

import time
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
from scorer.rollout.controller.analysis_step import evaluate_sums
from scorer.rollout.controller.decision_basis import (
    DecisionBasis,
    comparable_reasons,
    differences,
    missing_records,
    obstacles,
    read_basis,
    removed_records,
    uncertainties,
)
from scorer.rollout.controller.log_records import LogEntry
from scorer.rollout.controller.rollout_state import Rollout
from scorer.settings import Settings


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of verifying a logged decision.

    Attributes:
        entry: The log entry with the decision.
        differs: The differences between the recorded and the repeated analysis, one line each; empty if the decision was
            reproduced.
        pairs: The number of pairs of answers in the repeated analysis, counted for the rule with the most pairs.
        evidence: The revision of the channel move that was made because of the decision; None if there is no such move.
    """

    entry: LogEntry
    differs: tuple[str, ...]
    pairs: int
    evidence: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON document."""
        identity = {
            "rollout": self.entry.rollout,
            "seq": self.entry.seq,
            "kind": self.entry.kind,
            "verdict": self.entry.verdict,
        }
        return {
            **identity,
            "same": not self.differs,
            "differs": list(self.differs),
            "pairs": self.pairs,
            "evidence": self.evidence,
        }


def verify(settings: Settings, rollout: Rollout, seq: int) -> Verification:
    """Repeat the analysis of the log entry `seq` of a rollout, and compare the results with the entry.

    Raises:
        Fatal: With code 2 if there is nothing to verify: no such entry, an entry that is not based on pairs of answers, or
            topics that the settings do not name. With code 1 if the decision cannot be verified: records were removed, the
            entry does not name all records, or the result depends on how the topics are read.
    """
    entry = next((each for each in rollout.log if each.seq == seq), None)
    if entry is None or entry.judgement is None:
        available = ", ".join(str(each.seq) for each in rollout.log if each.judgement is not None) or "none"
        if entry is None:
            fault = f"rollout {rollout.id} has no entry {seq}"
        else:
            description = f"{entry.kind}: {'; '.join(entry.why)}"
            fault = f"entry {seq} of rollout {rollout.id} ({description}) is based on no pairs of answers"
        raise Fatal(fault, f"entries that can be verified: {available}", USAGE)
    basis = read_basis(rollout, entry)
    settings = basis.configured(settings)
    _reject(removed_records(basis, TopicReader(settings.kafka, f"{settings.name}.rollout").spans(list(basis.answers))))
    sums = _sums(settings, rollout, basis)
    with closing(_read_ranges(settings, rollout, basis, basis.answers, sums)) as analyzer:
        _reject(missing_records(basis.records, analyzer.records, "records"))
        verdict = evaluate_sums(
            rollout.plan,
            analyzer.paired_sums,
            analyzer.cells(time.monotonic()),
            comparable_reasons(entry.judgement, analyzer.reasons()),
            obstacles(rollout.plan, analyzer.sample, entry.obstacles),
        )
        repeated = analyzer.report(rollout.rivals, verdict).to_dict()
        scattered = analyzer.scattered
    differs = tuple(differences(entry.judgement, repeated))
    if differs:
        _reject(uncertainties(basis, entry.judgement, repeated, scattered))
    pairs = max((rule["pairs"] for rule in repeated["rules"]), default=0)
    return Verification(entry, differs, pairs, _evidence(settings, entry))


def _reject(reasons: Sequence[str]) -> None:
    """Raise Fatal with code 1 and the reasons why a decision cannot be verified; do nothing if there is no reason."""
    if reasons:
        raise Fatal(f"this decision cannot be verified: {'; '.join(reasons)}", "the available records do not suffice", FINDING)


def _sums(settings: Settings, rollout: Rollout, basis: DecisionBasis) -> LabelledSums | None:
    """Measure the scores' errors against labels again, and return the sums; None if no rule needs labels.

    Raises Fatal with code 1 if labels were removed after the decision.
    """
    # Only the answers and labels that `basis` names are read.
    if basis.joined is None:
        return None
    ranges = {
        partition: Bounds(low, max(low, min(high, basis.joined.get(partition, low))))
        for partition, (low, high) in basis.answers.items()
    }
    with closing(_read_ranges(settings, rollout, basis, ranges, labels=True)) as analyzer:
        sums = analyzer.labelled_sums(basis.labels)
    _reject(missing_records(basis.label_records, sums.records, "labels"))
    return sums if basis.label_records is not None else replace(sums, reason="")


def _read_ranges(
    settings: Settings,
    rollout: Rollout,
    basis: DecisionBasis,
    ranges: Spans,
    sums: LabelledSums | None = None,
    *,
    labels: bool = False,
) -> CanaryAnalyzer:
    """Return an analyzer that has read exactly the offsets `ranges`. The caller must close it. Raises Fatal if a read fails."""
    analyzer = CanaryAnalyzer(settings, rollout.rivals.contest, ALWAYS, ranges, labels=labels, sums=sums, outputs=basis.outputs)
    with ExitStack() as undo:
        undo.callback(analyzer.close)
        for _ in analyzer.to_end():
            pass
        undo.pop_all()
    return analyzer


def _evidence(settings: Settings, entry: LogEntry) -> int | None:
    """Return the revision of the channel move whose evidence is this log entry; None if there is no such move."""
    if entry.move is None:
        return None
    digest = digests.from_bytes(log_records.encode(entry))
    moves = channel.history(open_source(settings), settings.model.tag, entry.move.expects)
    return next((move.revision for move in moves if move.evidence == digest), None)
