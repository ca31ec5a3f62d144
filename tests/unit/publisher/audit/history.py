"""Histories of an exactly-once scorer as plain values, to be damaged and audited."""

from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import strategies as st

from publisher.audit.event_audit import Audit, AuditedAnswers, EventReport, Kind, Window
from publisher.audit.version_order import VersionCutover
from publisher.kafka.partitions import Partition

TOPIC = "flights"
DIGESTS = ("sha256:a", "sha256:b", "sha256:c")


@dataclass(frozen=True)
class Answer:
    """An answer in an output partition."""

    source: Partition
    offset: int
    kind: Kind
    digest: str
    id: int


@dataclass
class History:
    """`add_inputs` by partition, ascending; `add_answers` in the order in which they were written."""

    inputs: dict[Partition, list[int]]
    answers: list[Answer]
    swaps: dict[Partition, list[VersionCutover]]
    outputs: int = 1
    unreadable: list[int] = field(default_factory=list)
    committed: dict[Partition, int] = field(default_factory=dict)
    due: dict[Partition, int] = field(default_factory=dict)

    def window(self, partition: Partition) -> Window:
        end = max(self.inputs[partition], default=-1) + 1
        return Window(0, end, None, self.due.get(partition))

    def output(self, answer: Answer) -> Partition:
        return ("dead", 0) if answer.kind is Kind.DEAD else ("scores", answer.source[1] % self.outputs)


def audited(history: History, windows: dict[Partition, Window] | None = None, batch: int = 7) -> EventReport:
    """Feed a history in batches, answers first: the order of the calls must not matter."""
    audit = Audit(windows or {partition: history.window(partition) for partition in history.inputs})
    for start in range(0, len(history.answers), batch):
        chunk = history.answers[start : start + batch]
        for lane in dict.fromkeys((history.output(answer), answer.source) for answer in chunk):
            audit.add_answers(_columns(lane, [a for a in chunk if (history.output(a), a.source) == lane]))
    for offset in history.unreadable:
        audit.count_unreadable(("scores", 0), offset)
    for partition, swaps in history.swaps.items():
        for swap in swaps:
            audit.add_cutover(partition, swap)
    for partition, offsets in history.inputs.items():
        audit.add_inputs(partition, np.array(offsets, np.int64))
        audit.set_committed(partition, history.committed.get(partition, 10**9))
    return audit.report()


def _columns(lane: tuple[Partition, Partition], answers: list[Answer]) -> AuditedAnswers:
    digests = [answer.digest for answer in answers]
    return AuditedAnswers(
        output=lane[0],
        source=lane[1],
        offsets=np.array([answer.offset for answer in answers], np.int64),
        kinds=np.array([answer.kind for answer in answers], np.uint8),
        digests=digests[0] if len(set(digests)) == 1 else digests,
        ids=np.array([answer.id for answer in answers], np.int64),
    )


@st.composite
def clean_histories(draw: st.DrawFn) -> History:
    """Draw histories with gaps of transaction markers, several versions and rollbacks, dead letters and expired events."""
    history = History({}, [], {}, outputs=draw(st.integers(1, 3)))
    for number in range(draw(st.integers(1, 3))):
        partition = (TOPIC, number)
        steps = draw(st.lists(st.integers(1, 3), min_size=4, max_size=12))
        offsets = np.cumsum(steps).tolist()
        history.inputs[partition] = offsets
        reigns = _reigns(draw, offsets)
        history.swaps[partition] = reigns[0 if draw(st.booleans()) else 1 :]
        for offset in offsets:
            kind = draw(st.sampled_from([Kind.SCORED, Kind.SCORED, Kind.SCORED, Kind.DEAD, Kind.EXPIRED]))
            digest = next(swap.digest for swap in reversed(reigns) if swap.offset <= offset)
            history.answers.append(Answer(partition, offset, kind, digest, hash((number, offset))))
    history.answers = _interleaved(draw, history.answers)
    return history


def _reigns(draw: st.DrawFn, offsets: list[int]) -> list[VersionCutover]:
    """Draw swaps: the first version from the first offset on, then another one each time, with rising revisions."""
    cuts = sorted(draw(st.sets(st.sampled_from(offsets[1:]), max_size=3)))
    reigns = [VersionCutover(offsets[0], 1, DIGESTS[0])]
    for revision, cut in enumerate(cuts, 2):
        other = [digest for digest in DIGESTS if digest != reigns[-1].digest]
        reigns.append(VersionCutover(cut, revision, draw(st.sampled_from(other))))
    return reigns


def _interleaved(draw: st.DrawFn, answers: list[Answer]) -> list[Answer]:
    """Mix the partitions, and keep the order within each."""
    order = draw(st.permutations([answer.source for answer in answers]))
    queues = {source: iter([a for a in answers if a.source == source]) for source in set(order)}
    return [next(queues[source]) for source in order]


def with_answer(history: History, at: int, **changes: object) -> History:
    answers = list(history.answers)
    answers[at] = replace(answers[at], **changes)  # type: ignore[arg-type]
    return replace(history, answers=answers)
