"""If the facts contradict each other, the relay stops with code 3, reports both, and names the command that continues."""

import json
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from publisher.relay.clusters import open_checkpoint_log
from publisher.relay.fence import registration
from publisher.relay.relay_state import RelayState
from publisher.relay.run_once import RelayRun
from publisher.relay.settings import load
from publisher.relay.start_position import CopyRefused
from publisher.relay.transaction_writer import SEEN_SECONDS
from scorer.demo.broker.embedded import EmbeddedBroker
from tests.integration.relay.conftest import LONGEST_TRANSACTION_MS
from tests.integration.relay.counting import CLEAN
from tests.integration.relay.rig import MakeRelay, RelayRig
from tests.integration.scorer.rig import Rig
from tests.support.waiting import until

ATTEMPTS = 20  # it is the second or third at the latest


def recreate_source(rig: RelayRig) -> None:
    """Delete and recreate the source, with a log that is longer than the position."""
    rig.delete(rig.source)
    rig.create(rig.source)
    rig.fill(800)


def truncate_source(rig: RelayRig) -> None:
    rig.fill(100)
    rig.truncate(rig.source)


def recreate_destination(rig: RelayRig) -> None:
    rig.delete(rig.destination)
    rig.create(rig.destination)


def lose_the_checkpoints(rig: RelayRig) -> None:
    rig.delete(rig.destination, f"{rig.name}.checkpoints")


def lose_one_checkpoint(rig: RelayRig) -> None:
    rig.run("checkpoint", "reset")
    rig.run("checkpoint", "set", "--topic", rig.topic, "--partition", "3", "--to", "latest")


CASES: dict[Callable[[RelayRig], None], tuple[str, ...]] = {
    recreate_source: ("was recreated", "its id was"),
    truncate_source: ("were deleted before they were copied", "begins at"),
    lose_the_checkpoints: ("has no checkpoint", "holds data up to offset"),
    lose_one_checkpoint: ("has no checkpoint, but partitions with higher numbers have one",),
    recreate_destination: ("destination topic", "was recreated"),
}


def test_the_relay_does_not_guess(make_relay: MakeRelay) -> None:
    rig = make_relay(lanes=2).run_once(400)
    for befall, facts in CASES.items():
        befall(rig)
        message = rig.refused()
        assert all(fact in message for fact in facts), message
        assert "publisher checkpoint set CONFIG --topic" in message.split('"hint": ')[1], message
        rig.run("checkpoint", "set", "--topic", rig.topic, "--to", "latest")
    relay = rig.start().ready()
    rig.fill(100)
    until(lambda: relay.metric("publisher_records_total") == 100, "the copies after all that")
    assert relay.stop() == 0


def test_changes_under_a_running_or_frozen_relay_are_detected(make_relay: MakeRelay) -> None:
    rig, limit = make_relay(lanes=2).run_once(400), 400
    for befall, fact in ((truncate_source, "were deleted before they were copied"), (recreate_source, "was recreated")):
        relay = rig.start().ready()
        relay.send(signal.SIGSTOP)
        rig.fill(100)  # what it asked for before is answered with these; what comes after them it cannot have
        befall(rig)
        time.sleep(SEEN_SECONDS)  # what happened a shorter while ago it may not know
        relay.send(signal.SIGCONT)
        assert relay.wait() == 3, relay.said
        assert fact in relay.said
        limit += 100
        assert rig.copied() <= limit
        rig.run("checkpoint", "set", "--topic", rig.topic, "--to", "latest")
    relay, before = rig.start().ready(), rig.copied()
    recreate_source(rig)
    assert relay.wait() == 3, relay.said
    assert "was recreated" in relay.said or "does not exist" in relay.said
    assert rig.copied() == before


def test_another_cluster_under_the_address_or_another_name_is_noticed(make_relay: MakeRelay) -> None:
    rig = make_relay(lanes=2).run_once(400)
    name = rig.name
    rig.configure(name=f"{name}-renamed")
    assert f"relay {name!r} already copies {rig.topic}[0]" in rig.refused().replace("\\'", "'")
    rig.configure(name=name, source={"bootstrap_servers": rig.destination}, destination={"topic": "{topic}"})
    message = rig.refused()
    assert "the checkpoint" in message
    assert "cluster" in message


def test_fewer_partitions_at_the_destination_are_refused(make_relay: MakeRelay) -> None:
    rig = make_relay(lanes=2).run_once(400)
    rig.configure(destination={"create_topics": False})
    relay = rig.start().ready()
    rig.grow(rig.source, 6)
    assert relay.wait() == 3, relay.said
    assert "has 6 partitions" in relay.said
    assert "publisher check CONFIG --create" in relay.said
    assert rig.json("check", "--create")["ok"]
    relay = rig.start().ready()
    rig.fill(600, partitions=6)
    rig.wait_copied(1_000)
    assert relay.stop() == 0
    assert rig.audit() == CLEAN


def cut_the_log(broker: EmbeddedBroker, topic: str) -> None:
    """Partition 0 loses its last records, as where a replica that had fallen behind became the leader."""
    broker.kill()
    folder = broker.folder / "data" / f"{topic}-0"
    segments = sorted(folder.glob("*.log"))
    markers = [(segment, end) for segment in segments for end in ends_of_transactions(segment.read_bytes())]
    last, end = markers[len(markers) // 2]
    last.write_bytes(last.read_bytes()[:end])
    for other in (*folder.glob("*index"), *folder.glob("*.snapshot"), *segments[segments.index(last) + 1 :]):
        other.unlink()
    broker.restart()


def ends_of_transactions(data: bytes) -> list[int]:
    """Where the markers of transactions end in a segment (Kafka protocol: record batches; control batches have bit 5 set)."""
    at, ends = 0, []
    while at < len(data):
        begin, at = at, at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if data[begin + 22] & 0x20:
            ends.append(at)
    return ends


def test_a_relay_stops_if_copies_are_missing(us: EmbeddedBroker, make_relay: MakeRelay) -> None:
    rig = make_relay(transaction_records=20).run_once(400)
    cut_the_log(us, rig.topic)
    message = rig.refused()
    assert (
        f"{rig.topic}[0] is copied up to offset 99, but {rig.topic}[0] at the destination ends with the copy of offset"
        in message
    )
    command = message.split("to continue deliberately: publisher ")[1].split('"')[0].split()
    rig.run(*(word for word in command if word != "CONFIG"))
    relay = rig.start().ready()
    rig.fill(40)
    until(rig.at_rest, "all copies")
    assert relay.stop() == 0
    assert rig.audit() == CLEAN


def test_copies_that_the_destination_keeps_no_longer_are_no_reason_to_stop(make_relay: MakeRelay) -> None:
    rig = make_relay(lanes=2).run_once(400)
    rig.truncate(rig.destination)
    relay = rig.start().ready()
    rig.fill(40)
    until(rig.at_rest, "all copies")
    assert relay.stop() == 0
    audit = rig.json("audit")
    assert (audit["clean"], audit["copies"], audit["expired"]) == (True, 40, 400)


def test_copies_of_a_recreated_topic_are_reported_as_missing(make_relay: MakeRelay) -> None:
    rig = make_relay(lanes=2).run_once(400)
    rig.delete(rig.source)
    rig.create(rig.source)
    rig.fill(80)
    audit = rig.json("audit")
    assert (audit["clean"], audit["gone"], audit["source"], audit["pending"]) == (True, 400, 80, 80), audit
    rig.run("checkpoint", "set", "--topic", rig.topic, "--to", "earliest")
    for start in (0, 1):  # the checkpoints of lanes keep where the copies of the new topic begin
        relay = rig.start().ready()
        rig.fill(40)
        until(rig.at_rest, "all copies")
        assert relay.stop() == 0
        audit = rig.json("audit")
        copies = 120 + 40 * start
        assert (audit["clean"], audit["gone"], audit["copies"], audit["pending"]) == (True, 400, copies, 0), audit


def test_of_two_relays_that_start_together_one_continues(make_relay: MakeRelay) -> None:
    for attempt in range(ATTEMPTS):
        rig = make_relay(destination={"create_topics": True})
        rig.create(rig.source)
        rig.create(rig.destination)
        rig.fill(200)
        outcomes, raced = begin_together(rig, [rig.name, f"{rig.name}-twin"])
        assert sum(outcome is None for outcome in outcomes) == 1, outcomes
        if raced:
            break
        assert attempt < ATTEMPTS - 1, "they never began at the same moment"
    assert rig.copied() == 200


def begin_together(rig: RelayRig, names: list[str]) -> tuple[list[CopyRefused | None], bool]:
    """Relays of one topic, all past the first look at the checkpoints when the first of them writes its own if luck has it:
    how each began, and whether all of them had written. Then they copy everything, and end."""
    barrier = threading.Barrier(len(names))
    lives: list[RelayRun] = []
    for name in names:
        settings = load(rig.path, [f"name={name}"]).settings
        lives.append(RelayRun(settings, RelayState(settings.lanes, name), threading.Event()))
        lives[-1].resolve_topics()
        lives[-1].take_over(registration(settings, name, "a test"), lambda: None)

    def begin(number: int) -> CopyRefused | None:
        barrier.wait()
        try:
            lives[number].begin(registration(load(rig.path).settings, names[number], "a test"))
        except CopyRefused as refused:
            return refused
        return None

    with ThreadPoolExecutor(len(names)) as pool:
        outcomes = list(pool.map(begin, range(len(names))))
    raced = all(life.checkpoints.checkpoints_of(name) for life, name in zip(lives, names, strict=True))
    until(lambda: rig.copied() >= 200, "the copies")
    for life in lives:
        life.close()
    checkpoints = open_checkpoint_log(load(rig.path).settings)
    checkpoints.refresh()
    with_checkpoints = [bool(checkpoints.checkpoints_of(name)) for name in names]
    assert with_checkpoints == [outcome is None for outcome in outcomes], "who does not copy takes its checkpoints back"
    return outcomes, raced


def test_missing_topics_are_named(make_relay: MakeRelay) -> None:
    rig = make_relay(destination={"create_topics": False})
    assert f"topic {rig.name}.checkpoints does not exist" in rig.refused(2)
    assert f"topic {rig.topic} does not exist in eu" in str(rig.json("check", "--create", code=1)["checks"])
    assert f"topic {rig.topic} does not exist in eu" in rig.refused(2)
    rig.create(rig.source)
    misspelt, question = f"source.topics=[{rig.topic}s]", f"did you mean '{rig.topic}'?"
    assert question in str(rig.json("check", "--set", misspelt, "--create", code=1)["checks"])
    assert question in rig.refused(2, misspelt)
    assert "does not exist at the destination" in rig.refused(2)
    assert rig.json("check", "--create")["ok"]
    assert rig.start().ready().stop() == 0


def test_a_transaction_timeout_above_the_brokers_names_the_setting_and_the_remedy(
    make_relay: MakeRelay, us: EmbeddedBroker, tmp_path: Path
) -> None:
    rig = make_relay(destination={"transaction_timeout_ms": LONGEST_TRANSACTION_MS + 1})
    rig.create(rig.source)
    failed_checks = {each["check"]: each for each in rig.json("check", "--create", code=1)["checks"] if not each["ok"]}
    assert set(failed_checks) == {"transactions"}
    assert (
        "destination.transaction_timeout_ms (60001) is above the broker's transaction.max"
        in failed_checks["transactions"]["detail"]
    )
    assert "lower destination.transaction_timeout_ms" in failed_checks["transactions"]["hint"]
    rig.configure(destination={"transaction_timeout_ms": LONGEST_TRANSACTION_MS})
    assert rig.json("check", "--create")["ok"]
    rig.configure(destination={"transaction_timeout_ms": LONGEST_TRANSACTION_MS + 1})
    assert "destination.transaction_timeout_ms (60001) is above" in rig.refused(2)
    scorer = Rig(us.bootstrap_servers, tmp_path, rig.name, kafka={"transaction_timeout_ms": LONGEST_TRANSACTION_MS + 1})
    findings = json.loads(scorer.run("scorer", "check", "scorer.yaml", "--create", "--json", code=1).stdout)["checks"]
    failed = {each["check"]: each["detail"] for each in findings if not each["ok"]}
    assert set(failed) == {"broker", "model"}
    assert "kafka.transaction_timeout_ms (60001) is above the broker's transaction.max.timeout.ms" in failed["broker"]


def test_a_position_set_by_hand_ends_the_relay_that_runs(make_relay: MakeRelay) -> None:
    rig = make_relay(lanes=2).run_once(400)
    relay = rig.start().ready()
    moves = rig.json("checkpoint", "set", "--topic", rig.topic, "--partition", "0", "--to", "50")["positions"]
    assert moves == [{"topic": rig.topic, "partition": 0, "before": 100, "after": 50}]
    rig.fill(4)
    assert relay.wait() == 3, relay.said
    assert "publisher checkpoint set" in relay.said
    relay = rig.start().ready()
    rig.wait_copied(454)
    assert relay.stop() == 0
    assert "is not a valid offset" in rig.run("checkpoint", "set", "--topic", rig.topic, "--to", "9999", code=2).stderr
    assert (
        "no partition 9" in rig.run("checkpoint", "set", "--topic", rig.topic, "--to", "1", "--partition", "9", code=2).stderr
    )
