"""One round of compressed batches around the limit of the expanded size, among good events, at a scorer."""

import random
from collections import Counter

from tests.chaos.fuzz.played import Played, Positions, drain
from tests.integration.scorer.rig import MakeRig, events
from tests.support.bombs import CODECS, bomb

PARTITIONS = 3
LARGE_BATCHES = 50_000_000
LARGEST = 160 << 20  # bytes that a bomb expands to: the auditors read all of them
DEAD_LETTER_HEADERS = 1 << 20  # bytes that a dead letter may take beside its record
SHARES = (0.001, 0.1, 0.5, 0.9, 1.0, 1.2, 2.0, 5.0)
"""The expanded size of a batch, as a share of the limit and the spare memory of the sandbox."""
RECORDS = (1, 1, 2, 10, 100, 2_000)
SPARE = 64 << 20
GOOD = 30


def play(make_rig: MakeRig, seed: int, count: int) -> Played:
    draw = random.Random(seed)
    limit = draw.choice([1, 4, 16]) << 20
    played = Played(seed, f"batches around {limit >> 20} MiB", count)
    rig = make_rig(input={"expanded_bytes": limit}).stocked(PARTITIONS)
    rig.alter(rig.events_topic, "max.message.bytes", str(LARGE_BATCHES))
    rig.alter(rig.dead_topic, "max.message.bytes", str(LARGE_BATCHES + DEAD_LETTER_HEADERS))
    positions = Positions(rig, PARTITIONS)
    scorer, good, written = rig.start().ready(), 0, 0
    for _ in range(count):
        codec, records = draw.choice(CODECS), draw.choice(RECORDS)
        size = min(LARGEST, max(records, int(draw.choice(SHARES) * (limit + SPARE))))
        bomb(rig.bootstrap_servers, rig.events_topic, draw.randrange(PARTITIONS), codec, size, records)
        written += records
        good += rig.emit(events(GOOD, start=good))
    drain(played, positions, [scorer])
    played.answers["scored"] = len(rig.scores())
    letters = Counter(letter["reason"] for letter in rig.dead())
    played.answers += letters
    if played.answers["scored"] != good:
        played.findings.append(f"{played.answers['scored']} of {good} good events are scored")
    played.findings += [
        f"{letters[reason]} letters: {reason}" for reason in ("internal-error", "crashes-scorer") if letters[reason]
    ]
    audit = rig.audit()
    played.findings += [f"{name}: {value}" for name, value in audit.items() if name != "inputs" and value]
    if audit["inputs"] != good + written:
        played.findings.append(f"{audit['inputs']} of {good + written} records were read by the auditor")
    try:
        rig.assert_audited(events=good + written, scored=good, dead_lettered=written)
    except AssertionError as error:
        played.findings.append(f"scorer audit: {error}"[:1_000])
    return played
