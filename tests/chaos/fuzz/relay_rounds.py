"""One round at a relay: random records of one seed in a topic of the source, and the outcome of each at the destination."""

import contextlib
import random
from collections import Counter

from confluent_kafka import Message

from tests.chaos.fuzz.raw import RawRecord
from tests.chaos.fuzz.records import EVENTS
from tests.chaos.fuzz.rounds import PARTITIONS, SHOWN, Place, Round, write
from tests.integration.relay.counting import header
from tests.integration.relay.rig import MakeRelay, RelayRig
from tests.support import auditor
from tests.support.waiting import until

RELAY_HEADERS = ("x-origin", "x-hops", "x-copied-to")


def planned(seed: int) -> Round:
    draw = random.Random(seed)
    return Round(seed, draw.choice(list(EVENTS)), "exactly-once", compacted=draw.random() < 0.3)


def play(make_relay: MakeRelay, played: Round, count: int) -> Round:
    rig = make_relay(lanes=2)
    rig.configure(refusal_topic=f"{rig.name}.refusals")
    rig.create(rig.source, partitions=PARTITIONS, message_timestamp_after_max_ms=str(2**63 - 1))
    rig.create(rig.destination, partitions=PARTITIONS, **({"cleanup_policy": "compact"} if played.compacted else {}))
    written = write(rig.source, rig.topic, played, count)
    relay = rig.start()

    def at_rest() -> bool:
        if relay.process.poll() is not None:
            return True
        rows = rig.json("status")["partitions"]
        return len(rows) == PARTITIONS and all(row["lag_records"] == 0 for row in rows)

    with contextlib.suppress(AssertionError):
        until(at_rest, "the end of all partitions")
    if not at_rest():
        played.findings.append(f"not all records are copied: {rig.json('status')['partitions']}"[:SHOWN])
    if relay.process.poll() is not None:
        played.findings.append(f"the relay ended with {relay.process.returncode}: {relay.said[-SHOWN:]}")
    elif restarts := relay.metric("publisher_restarts_total"):
        played.findings.append(f"the relay restarted {restarts:.0f} times: {relay.said[-SHOWN:]}")
    count_answers(rig, played, written)
    return played


def count_answers(rig: RelayRig, played: Round, written: dict[Place, RawRecord]) -> None:
    """Check that each record exists once, as an equal copy or in the refusal topic, and that copies are in order."""
    answers: Counter[Place] = Counter()
    last: dict[int, int] = {}
    for copy in auditor.read(rig.destination, rig.topic):
        place = copy.partition() or 0, int(header(copy, "x-origin").rpartition(b"/")[2])
        answers[place] += 1
        played.answers["copied"] = played.answers.get("copied", 0) + 1
        if place[1] <= last.get(place[0], -1):
            played.findings.append(f"out of order: {place}")
        last[place[0]] = place[1]
        if place in written and not equal(copy, written[place]):
            played.findings.append(f"altered: {place}: {written[place]!r}"[:SHOWN])
    for letter in auditor.read(rig.destination, f"{rig.name}.refusals"):
        *_, partition, first = header(letter, "refused.source").decode().split("/")
        end = int(dict(letter.headers() or []).get("refused.last") or first)
        answers.update((int(partition), offset) for offset in range(int(first), end + 1))
        reason = header(letter, "refused.reason").decode()
        played.answers[reason] = played.answers.get(reason, 0) + 1
    for place, record in written.items():
        if answers[place] != 1:
            played.findings.append(f"{answers[place]} answers to {place}: {record!r}"[:SHOWN])
    played.findings += [f"an answer to {place}, which was never written" for place in answers.keys() - written.keys()]


def equal(copy: Message, record: RawRecord) -> bool:
    """Return whether a copy equals the record, within the limits of the client: a record without a time gets the time of its
    copy, and a header name ends at a zero byte."""
    copied_headers = [
        (header_pair[0].encode(), header_pair[1]) for header_pair in copy.headers() or [] if header_pair[0] not in RELAY_HEADERS
    ]
    record_headers = [(name.split(b"\0")[0], value) for name, value in record.headers]
    expected_headers = [header_pair for header_pair in record_headers if header_pair[0].decode() not in RELAY_HEADERS]
    same_time = record.timestamp <= 0 or copy.timestamp()[1] == record.timestamp
    return (copy.key(), copy.value(), copied_headers) == (record.key, record.value, expected_headers) and same_time
