"""One round: a scorer, random records of one seed written at it, and a count of the outcomes."""

import contextlib
import random
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.fuzz.raw import RawProducer, RawRecord
from tests.chaos.fuzz.records import EVENTS, Records
from tests.integration.scorer.rig import MakeRig, Rig, until

PARTITIONS = 3
SHOWN = 1_000  # characters of a record, of a log
Place = tuple[int, int]
DAMAGE = ("missing", "duplicates", "phantoms", "out_of_order")
REPEATABLE = ("missing", "phantoms")  # counted with at-least-once too


@dataclass
class Round:
    """The parameters of a round, which its seed determines, and its findings, a line each."""

    seed: int
    format: str
    delivery: str
    compacted: bool
    written: int = 0
    refused: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


def planned(seed: int) -> Round:
    draw = random.Random(seed)
    delivery = draw.choice(["exactly-once", "exactly-once", "at-least-once"])
    return Round(seed, draw.choice(list(EVENTS)), delivery, compacted=draw.random() < 0.3)


def surroundings(make_rig: MakeRig, played: Round) -> Rig:
    """Create a rig with a linear model in production. Only the input topic allows any timestamp."""
    named = "id" if played.format in ("json", "json-envelope") else "header:ce_id"
    overrides: dict[str, Any] = {"input": {"format": played.format, "id": named}, "delivery": played.delivery}
    rig = make_rig(**overrides).stocked(PARTITIONS)
    rig.alter(rig.events_topic, "message.timestamp.after.max.ms", str(2**63 - 1))
    if played.compacted:
        rig.alter(rig.scores_topic, "cleanup.policy", "compact")
    return rig


def write(address: str, topic: str, played: Round, count: int) -> dict[Place, RawRecord]:
    """Write `count` records that the broker at `address` accepts; return them by partition and offset."""
    source, accepted = Records(played.seed, played.format), [0] * PARTITIONS
    written: dict[Place, RawRecord] = {}
    with contextlib.closing(RawProducer(address)) as producer:
        while len(written) < count:
            codec, records = source.batch(count - len(written))
            partition = len(written) % PARTITIONS
            if producer.write(topic, partition, records, codec) != 0:
                played.refused += len(records)
                continue
            written |= {(partition, accepted[partition] + at): record for at, record in enumerate(records)}
            accepted[partition] += len(records)
    played.written = len(written)
    return written


def play(make_rig: MakeRig, played: Round, count: int) -> Round:
    rig = surroundings(make_rig, played)
    written = write(rig.bootstrap_servers, rig.events_topic, played, count)
    ends = {partition: 1 + max(offset for p, offset in written if p == partition) for partition, _ in written}
    scorer = rig.start()

    def behind() -> dict[int, int]:
        marks = rig.marks()
        return {p: marks.get(p, {}).get("offset", 0) for p, end in ends.items() if marks.get(p, {}).get("offset") != end}

    with contextlib.suppress(AssertionError):
        until(lambda: not behind() or scorer.process.poll() is not None, "all answers")
    for partition, offset in behind().items():
        stuck = written.get((partition, max(offset, 0)))
        played.findings.append(f"partition {partition} stays at offset {offset}: {stuck!r:.{SHOWN}}")
    if scorer.process.poll() is not None:
        played.findings.append(f"the scorer ended with {scorer.process.returncode}: {scorer.said[-SHOWN:]}")
    audit = rig.audit()
    wrong = DAMAGE if played.delivery == "exactly-once" else REPEATABLE
    played.findings += [f"{name}: {audit[name]}" for name in wrong if audit[name]]
    for letter in rig.dead():
        reason = letter["reason"]
        played.answers[reason] = played.answers.get(reason, 0) + 1
        if reason in ("internal-error", "crashes-scorer"):
            partition, offset = (int(part) for part in letter["source"].split("/")[-2:])
            finding = f"{reason} of {partition}@{offset}: {letter['error']}: {written[partition, offset]!r}"
            played.findings.append(finding[:SHOWN])
    return played
