"""Compressed batches that expand: each is one dead letter that says where it is, and everything around it is scored."""

import json
import sys
from pathlib import Path

from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.support.bombs import bomb

LARGE_BATCHES, DEAD_BYTES = "50000000", "60000000"
LIMIT = 32 << 20
KILLING = 700 << 20  # beyond what a worker of `small.py` may take
SMALL = [sys.executable, str(Path(__file__).with_name("small.py"))]
STILL_MS = 1_500 + 10_000  # the session timeout, and a few seconds on a busy machine


def with_bombs(make_rig: MakeRig, partitions: int = 2) -> Rig:
    rig = make_rig(input={"expanded_bytes": LIMIT}, kafka={"session_timeout_ms": 1_500}).stocked(partitions)
    rig.alter(rig.dead_topic, "max.message.bytes", DEAD_BYTES)
    rig.alter(rig.events_topic, "max.message.bytes", LARGE_BATCHES)
    return rig


def assert_scored_around(rig: Rig, count: int, places: list[tuple[int, int, int, str]]) -> None:
    """All events are scored once; each bomb (partition, first and last offset, codec) is one dead letter.

    Both auditors count every record of a bomb as dead-lettered.
    """
    until(lambda: rig.answered() >= count + len(places), "all answers")
    assert sorted(r["id"] for r in rig.scores()) == sorted(f"e{number}" for number in range(count))
    letters = {letter["source"]: letter for letter in rig.dead()}
    sources = {f"local/{rig.events_topic}/{partition}/{last}": (first, last, codec) for partition, first, last, codec in places}
    assert {source: letter["reason"] for source, letter in letters.items()} == dict.fromkeys(sources, "unreadable-batch")
    for source, (first, last, codec) in sources.items():
        letter = letters[source]
        assert letter["value"] is None
        assert f"offsets {first} to {last} ({codec}, " in letter["error"]
    records = sum(last + 1 - first for _, first, last, _ in places)
    rig.assert_clean(events=count + records, scored=count, dead_lettered=records)


def test_a_partition_moves_past_batches_that_the_client_cannot_decompress(make_rig: MakeRig) -> None:
    """Of one record, and of many small ones that take memory each."""
    rig = with_bombs(make_rig)
    rig.emit(events(100))
    scorer = rig.start()
    first = bomb(rig.bootstrap_servers, rig.events_topic, 0, "zstd", 160 << 20)
    rig.emit(events(100, start=100))
    second = bomb(rig.bootstrap_servers, rig.events_topic, 0, "zstd", 160 << 20, records=20)
    rig.emit(events(100, start=200))
    assert_scored_around(rig, 300, [(0, *first, "zstd"), (0, *second, "zstd")])
    assert scorer.deaths == 0
    assert scorer.stop() == 0
    report = audited_without_letters(rig)
    assert (report["events"], report["scored"], report["missing"]) == (321, 300, 21)


def audited_without_letters(rig: Rig) -> dict[str, int]:
    """What `publisher audit` counts if no letter names the bombs."""
    topics = ("--input", rig.events_topic, "--output", rig.scores_topic)
    completed = rig.run("publisher", "audit", "--bootstrap-servers", rig.bootstrap_servers, *topics, "--json", code=1)
    report: dict[str, int] = json.loads(completed.stdout)
    return report


def test_a_batch_that_kills_a_worker_while_it_is_fetched_costs_one_death(make_rig: MakeRig) -> None:
    rig = with_bombs(make_rig)
    rig.program = SMALL
    rig.emit(events(100))
    place = bomb(rig.bootstrap_servers, rig.events_topic, 1, "lz4", KILLING)
    rig.emit(events(100, start=100))
    scorer = rig.start()
    assert_scored_around(rig, 200, [(1, *place, "lz4")])
    assert scorer.deaths == 1
    until(lambda: "is no longer read in the sandbox" in scorer.said, "the end of the suspicion")
    rig.emit(events(100, start=200))
    until(lambda: rig.answered() >= 301, "the scores of later events")
    assert scorer.stop() == 0


def test_a_batch_that_kills_a_worker_holds_up_no_partition_of_two_scorers(make_rig: MakeRig) -> None:
    rig = with_bombs(make_rig, partitions=4)
    rig.program = SMALL
    scorers = [rig.start("a"), rig.start("b")]
    rig.emit(events(100))
    until(lambda: rig.answered() >= 100, "the scores before the bomb")
    until(lambda: len({mark["owner"] for mark in rig.marks().values()}) == 2, "partitions of both scorers")
    place = bomb(rig.bootstrap_servers, rig.events_topic, 1, "lz4", KILLING)
    rig.emit(events(100, start=100))
    assert_scored_around(rig, 200, [(1, *place, "lz4")])
    waited = dict.fromkeys(range(4), 0)
    for score in rig.scores():
        number = score["source"]["partition"]
        waited[number] = max(waited[number], score["scored_ms"] - score["event_ms"])
    assert all(milliseconds < STILL_MS for number, milliseconds in waited.items() if number != 1), waited
    assert 1 <= sum(scorer.deaths for scorer in scorers) <= 2
    assert [scorer.stop() for scorer in scorers] == [0, 0]


def test_a_bomb_in_a_topic_beside_the_events_stops_no_start_and_no_command(make_rig: MakeRig) -> None:
    rig = with_bombs(make_rig)
    bomb(rig.bootstrap_servers, f"{rig.name}.swaps", 0, "zstd", 160 << 20)
    rig.emit(events(20))
    rig.produce(b"{", key=b"k")
    scorer = rig.start()
    until(lambda: rig.answered() == 21, "the answers")
    assert scorer.deaths == 0
    bomb(rig.bootstrap_servers, rig.dead_topic, 0, "zstd", 400 << 20)
    completed = rig.run("scorer", "replay", "scorer.yaml", "--dry-run", "--json")
    assert json.loads(completed.stdout)["replayed"] == 1
    assert f"{rig.dead_topic}[0]: the batch at offsets" in completed.stderr
    assert scorer.stop() == 0
