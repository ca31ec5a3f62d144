"""Two processes of one replica on the real broker, a dead one that the group still counts, and forged records of others."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator

from confluent_kafka import Producer

from publisher.transactions.transactional_ids import POOL_SIZE
from tests.integration.scorer.rig import MakeRig, Rig, events, until

CALL_EVENTS = 800  # written by one command, in a second
FORGED = "forged"
FORGING_SECONDS = 1.0
HINT = "give each process its own replica name"


@contextlib.contextmanager
def flowing(rig: Rig) -> Iterator[list[int]]:
    """Events come until the block ends; how many by each command."""
    written: list[int] = []
    over = threading.Event()

    def flow() -> None:
        while not over.is_set():
            batch = events(CALL_EVENTS, start=CALL_EVENTS * len(written), keys=300)
            written.append(rig.emit(batch, "--rate", str(CALL_EVENTS)))

    thread = threading.Thread(target=flow)
    thread.start()
    try:
        yield written
    finally:
        over.set()
        thread.join()


def test_of_two_processes_that_start_together_one_ends_and_a_third_is_refused(make_rig: MakeRig) -> None:
    rig = make_rig().stocked()
    twins = [rig.start("a"), rig.start("a")]
    with flowing(rig) as written:
        until(lambda: any(twin.process.poll() is not None for twin in twins), "the end of one")
        (survivor,) = (twin for twin in twins if twin.process.poll() is None)
        (ended,) = (twin for twin in twins if twin is not survivor)
        assert ended.process.returncode == 3, ended.said
        assert HINT in ended.said
        assert "live process already uses the replica name" in ended.said
        survivor.ready()
        until(lambda: survivor.metric("scorer_assigned_partitions") == 4, "all partitions")
        commits = survivor.metric("scorer_commits_total")
        # each producer of the pool may have been fenced, and gets the error at its next use
        until(lambda: survivor.metric("scorer_commits_total") >= commits + 2 * POOL_SIZE, "a turn of each producer")
        recoveries = survivor.said.count("recovering")
        third = rig.start("a")
        assert third.wait() == 3
        assert HINT in third.said
    count = sum(written)
    until(lambda: rig.answered() >= count, "all scores")
    rig.assert_clean(events=count, scored=count)
    assert survivor.said.count("recovering") == recoveries
    assert [(row["scorer"], row["state"]) for row in rig.fleet()] == [(f"{rig.name}.a", "running")]
    assert survivor.stop() == 0


def test_a_dead_member_that_the_group_keeps_is_no_twin(make_rig: MakeRig) -> None:
    """A broker may keep a dead member beyond its session while the group is busy; here it has a long one."""
    rig = make_rig().stocked()
    dead = rig.start("a", "--set", "kafka.session_timeout_ms=60000").ready()
    rig.emit(events(100))
    until(lambda: rig.answered() >= 100, "the first scores")
    dead.kill()
    successor = rig.start("a")
    assert successor.address
    assert successor.process.poll() is None
    assert successor.stop() == 0


@contextlib.contextmanager
def forging(rig: Rig, replica: str) -> Iterator[None]:
    """Status records of an older process of a replica that runs, once a second until the block ends."""
    record = {**rig.fleet()[0], "instance": FORGED, "first": 0, "started_ms": 1, "state": "running"}
    producer, over = Producer({"bootstrap.servers": rig.bootstrap_servers}), threading.Event()

    def forge() -> None:
        while not over.wait(FORGING_SECONDS):
            value = json.dumps({**record, "heartbeat_ms": time.time_ns() // 1_000_000})
            producer.produce(f"{rig.name}.status", value.encode(), f"{rig.name}.{replica}".encode())
            producer.flush(10)

    thread = threading.Thread(target=forge)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_forged_records_of_an_older_process_end_no_scorer_and_keep_none_from_starting(make_rig: MakeRig) -> None:
    rig = make_rig().stocked()
    scorer = rig.start("a", "--set", "kafka.session_timeout_ms=15000").ready()
    until(lambda: [row["state"] for row in rig.fleet()] == ["running"], "the status record")
    with forging(rig, "a"):
        until(lambda: rig.fleet()[0]["instance"] == FORGED, "the forged record")
        until(lambda: rig.fleet()[0]["instance"] != FORGED, "the next record of the scorer, which has read the forged one")
        rig.emit(events(100))
        until(lambda: rig.answered() >= 100, "scores beside forged records")
        assert scorer.process.poll() is None, scorer.said
        scorer.kill()  # the group counts it for longer than the records of its successor's twin are listened for
        successor = rig.start("a", "--set", "kafka.session_timeout_ms=15000").ready()
        rig.emit(events(100, start=100))
        until(lambda: rig.answered() >= 200, "scores of the successor")
    assert successor.stop() == 0
    rig.assert_clean(events=200, scored=200)
