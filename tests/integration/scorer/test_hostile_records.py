"""Records that a well-behaved client never writes: each is answered or dead-lettered, and nothing stops behind it."""

import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from publisher.kafka.headers import headers_of_one
from tests.chaos.fuzz import rounds
from tests.chaos.fuzz.raw import RawProducer, RawRecord
from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.support import auditor

DAY_MS = 86_400_000


def serve(make_rig: MakeRig, **overrides: Any) -> Rig:
    rig = make_rig(**overrides).stocked(1)
    rig.alter(rig.events_topic, "message.timestamp.after.max.ms", str(2**63 - 1))
    return rig


def write(rig: Rig, *batches: Sequence[RawRecord]) -> None:
    with contextlib.closing(RawProducer(rig.bootstrap_servers)) as producer:
        for batch in batches:
            code = producer.write(rig.events_topic, 0, batch, "zstd")
            assert code == 0, f"the input refuses what the test needs there: {code}"


def good(number: int, key: bytes | None = b"k", timestamp: int = 0, **fields: Any) -> RawRecord:
    event = {**next(iter(events(1, number))), **fields}
    return RawRecord(key, json.dumps(event).encode(), (), timestamp or time.time_ns() // 1_000_000)


def letters(rig: Rig) -> dict[int, dict[str, str]]:
    letters_by_offset = {}
    for message in auditor.read(rig.bootstrap_servers, rig.dead_topic):
        headers = {name: value.decode() for name, value in headers_of_one(message) or [] if isinstance(value, bytes)}
        headers["value"] = "" if message.value() is None else f"{len(message.value() or b'')} bytes"
        letters_by_offset[int(headers["dead.source"].rpartition("/")[2])] = headers
    return letters_by_offset


def answered(rig: Rig, count: int) -> None:
    """Wait until the first process has committed the group behind this many events of partition 0."""
    scorer = rig.scorers[0].process
    until(lambda: rig.marks().get(0, {}).get("offset") == count or scorer.poll() is not None, "all answers")
    assert scorer.poll() is None, rig.scorers[0].said


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_no_record_stops_its_partition(make_rig: MakeRig, delivery: str) -> None:
    rig = serve(make_rig, delivery=delivery)
    now = time.time_ns() // 1_000_000
    digits = "".join(random.Random(1).choices("0123456789abcdef", k=1_300_000)).encode()  # zstd halves it, lz4 does not
    hostile: dict[str, list[RawRecord]] = {
        "not-utf8": [
            RawRecord(b"k", good(900).value, ((b"\xff\xfe", b"x"), (b"ce_id", b"y")), now),
            RawRecord(b"k", b'{"id": "\\ud83d", "a": 1.0, "b": 0.0}', (), now),
            RawRecord(b"k", b'{"id": "e", "a": "\\ud83d", "b": 0.0}', (), now),
        ],
        "bad-deadline": [RawRecord(b"k", good(901).value, ((b"deadline", b"9" * 5_000),), now)],
        "malformed": [RawRecord(b"k", b"{", (), now + DAY_MS)],
        "record-refused": [
            RawRecord(b"k", b'{"id": "' + digits, (), now),
            good(902, timestamp=now + DAY_MS),
            good(903, timestamp=now + 2 * DAY_MS),
        ],
    }
    reasons: dict[int, str] = {}
    batches: list[RawRecord] = []
    for reason, records in hostile.items():
        for record in records:
            batches.append(good(len(batches)))
            reasons[len(batches)] = reason
            batches.append(record)
    batches += [good(number) for number in range(len(batches), 40)]
    write(rig, batches[:6], *([single] for single in batches[6:14]), batches[14:])
    scorer = rig.start().ready()
    answered(rig, 40)
    dead_letters = letters(rig)
    assert {offset: headers["dead.reason"] for offset, headers in dead_letters.items()} == reasons
    husks = {offset for offset, headers in dead_letters.items() if not headers["value"]}
    assert husks == {offset for offset, record in enumerate(batches) if len(record.value or b"") > 1_000_000}
    assert rig.faults().keys() <= ({"duplicates", "out_of_order"} if delivery == "at-least-once" else set())
    assert scorer.stop() == 0
    replayable = json.loads(rig.run("scorer", "replay", "scorer.yaml", "--dry-run", "--json").stdout)
    assert replayable["unfit"] == len(husks)
    assert {letter["reason"] for letter in rig.dead()} == set(hostile)


def test_events_without_a_key_are_dead_letters_where_the_score_topic_is_compacted(make_rig: MakeRig) -> None:
    """Some of a batch, then all of many, then one."""
    rig = serve(make_rig)
    rig.alter(rig.scores_topic, "cleanup.policy", "compact")
    keyless = {3, 50, 51, 97, *range(100, 1_100), 1_150}
    records = [good(number, None if number in keyless else b"k%d" % number) for number in range(1_200)]
    write(rig, records[:100])
    rig.start().ready()
    answered(rig, 100)
    write(rig, records[100:1_100])
    answered(rig, 1_100)
    write(rig, records[1_100:])
    answered(rig, 1_200)
    assert Counter(headers["dead.reason"] for headers in letters(rig).values()) == {"record-refused": len(keyless)}
    offsets = [record["source"]["offset"] for record in rig.scores()]
    assert offsets == [number for number in range(1_200) if number not in keyless]
    assert rig.faults() == {}


def test_every_record_that_the_protocol_allows_is_answered_once(make_rig: MakeRig) -> None:
    """The short form of `python -m tests fuzz`."""
    played = rounds.play(make_rig, rounds.Round(5, "json", "at-least-once", compacted=True), 200)
    assert (played.written, played.findings) == (200, [])
    assert len(played.answers) > 5, "the records are not as hostile as they were"
