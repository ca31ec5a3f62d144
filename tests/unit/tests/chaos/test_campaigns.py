"""Plans of campaigns are determined by their seed and end each fault that they begin; figures of a soak and of a reader."""

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chaos.faults import plan as scorers
from tests.chaos.faults import soak
from tests.chaos.faults.soak import Life
from tests.chaos.relay import plan as relays
from tests.chaos.stray import ADD_PARTITIONS, END_TXN, PRODUCE, TXN_OFFSET_COMMIT, Action, StrayEndTxn, transactional_id
from tests.chaos.watch import Stalls

SCORER_ENDS = {
    "freeze-scorer": "thaw-scorer",
    "freeze-broker": "thaw-broker",
    "kill-broker": "start-broker",
    "hold": "cut",
    "kill-leader": "start-broker",
    "fill-disk": "free-disk",
    "registry-away": "registry-back",
    "stop-scorer": "start-scorer",
    "flood-connections": "end-flood",
    "promote-bad": "swap",
}
RELAY_ENDS = {"freeze-relay": "thaw-relay", "freeze-broker": "thaw-broker", "kill-broker": "start-broker", "hold": "cut"}


def scorer_rounds(brokers: int, seeds: int, only: str | None = None) -> Iterator[Any]:
    possible = () if only else scorers.possible_faults(brokers)
    return (scorers.plan(1, seed, possible, brokers, 15.0, only=only) for seed in range(seeds))


def relay_rounds(seeds: int, only: str | None = None) -> Iterator[Any]:
    return (relays.plan(1, seed, 5.0, only=only) for seed in range(seeds))


def test_every_fault_of_scorers_occurs_and_brokers_fail_one_at_a_time() -> None:
    rounds = list(scorer_rounds(3, 300))
    assert rounds == list(scorer_rounds(3, 300))
    assert {fault for round_ in rounds for fault in round_.faults} == set(scorers.FAULTS)
    assert all(len(scorers.BROKER_FAULTS & set(round_.faults)) <= 1 for round_ in rounds)
    assert all(round_.proxied == bool(scorers.PROXY_FAULTS & set(round_.faults)) for round_ in rounds)
    assert {round_.protocol for round_ in rounds} == {"classic", "consumer"}


def test_impossible_faults_are_excluded() -> None:
    assert list(scorer_rounds(1, 50)) == list(scorer_rounds(1, 50))
    assert "move-coordinator" not in scorers.possible_faults(1)
    assert "disk-full" not in scorers.possible_faults(3, missing=["disk-full"])


def test_every_fault_and_point_of_a_relay_occurs() -> None:
    rounds = list(relay_rounds(300))
    assert rounds == list(relay_rounds(300))
    assert {fault for round_ in rounds for fault in round_.faults} == set(relays.FAULTS)
    assert {step.argument for round_ in rounds for step in round_.steps if step.verb == "arm"} == set(relays.POINTS)
    assert all(len(group & set(round_.faults)) <= 1 for round_ in rounds for group in relays.EXCLUSIVE)
    assert {round_.transactional for round_ in rounds} == {True, False}


@pytest.mark.parametrize(
    ("campaign", "fault"),
    [*(("scorers", fault) for fault in scorers.FAULTS), *(("relays", fault) for fault in relays.FAULTS)],
)
def test_every_fault_that_begins_also_ends(campaign: str, fault: str) -> None:
    ends = SCORER_ENDS if campaign == "scorers" else RELAY_ENDS
    for round_ in scorer_rounds(3, 50, fault) if campaign == "scorers" else relay_rounds(50, fault):
        assert round_.steps == tuple(sorted(round_.steps))
        for begin, end in ends.items():
            for step in (s for s in round_.steps if s.verb == begin):
                argument = step.argument if campaign == "relays" else None
                assert any(s.verb == end and s.at > step.at and argument in (None, s.argument) for s in round_.steps)
        slowed = [step for step in round_.steps if step.verb == "slow" and campaign == "relays"]
        assert not slowed or slowed[-1].argument.endswith(" 0")


def test_no_fault_affects_the_first_scorer() -> None:
    round_ = soak.plan(seed=7, seconds=3_600.0)
    verbs = [step for step in round_.steps if step.verb == "arm" or step.verb.endswith("-scorer")]
    assert len(verbs) > 20
    assert {step.argument.split()[0] for step in verbs} == {"1"}
    assert max(step.at for step in round_.steps) < 3_600.0
    assert round_ == soak.plan(seed=7, seconds=3_600.0)


def test_growing_values_are_reported_as_a_slope() -> None:
    life = Life("r0", [(float(second), 100.0 + second / 360, 40, 12) for second in range(0, 3_600, 5)])
    slopes = life.slopes()
    assert slopes is not None
    assert slopes["rss_mib_per_hour"] == pytest.approx(10.0, abs=0.01)
    assert slopes["rss_mib_per_hour_later"] == pytest.approx(10.0, abs=0.01)
    assert slopes["handles_per_hour"] == 0.0
    assert Life("r1", [(float(second), 100.0, 40, 12) for second in range(0, 600, 5)]).slopes() is None


def test_the_longest_pause_of_one_partition_counts() -> None:
    stalls = Stalls()
    stalls.arrived(2, 100.0)
    assert stalls.longest == 0.0
    for partition, now in [(0, 1.0), (1, 1.1), (0, 1.2), (0, 1.3), (1, 4.1), (0, 4.2)]:
        stalls.arrived(partition, now)
    assert round(stalls.longest, 3) == 3.0


NAME = b"app.r0.1"


def request(key: int, name: bytes = NAME, version: int = 1) -> bytes:
    return struct.pack(">hhih", key, version, 7, 3) + b"cid" + struct.pack(">h", len(name)) + name + bytes(11)


def test_the_transactional_id_is_read_from_plain_and_compact_strings() -> None:
    assert transactional_id(request(END_TXN)) == NAME
    flexible = struct.pack(">hhih", END_TXN, 3, 7, 3) + b"cid" + bytes([0, len(NAME) + 1]) + NAME + bytes(12)
    assert transactional_id(flexible) == NAME
    assert transactional_id(struct.pack(">hhih", END_TXN, 1, 7, -1) + struct.pack(">h", len(NAME)) + NAME) == NAME


def test_the_stray_end_is_sent_before_the_offsets_of_the_next_transaction() -> None:
    stray = StrayEndTxn()
    assert stray.request(request(END_TXN)) is Action.PASS  # without an order
    stray.order()
    first = request(END_TXN)
    assert stray.request(request(ADD_PARTITIONS)) is Action.PASS
    assert stray.request(first) is Action.HOLD
    overtaken = [END_TXN, ADD_PARTITIONS, TXN_OFFSET_COMMIT, PRODUCE]
    passing = [*overtaken, END_TXN, ADD_PARTITIONS, PRODUCE]
    assert [stray.request(request(key)) for key in passing] == [Action.PASS] * 7
    assert stray.request(request(TXN_OFFSET_COMMIT)) is Action.STRAY_FIRST
    assert stray.let_go() == first
    assert stray.loosed == 1
    assert stray.request(request(END_TXN)) is Action.PASS


def test_without_offsets_the_stray_end_is_sent_before_the_second_request_with_records() -> None:
    stray = StrayEndTxn(before=PRODUCE)
    stray.order()
    assert stray.request(request(END_TXN)) is Action.HOLD
    passing = [PRODUCE, END_TXN, ADD_PARTITIONS, PRODUCE]
    assert [stray.request(request(key)) for key in passing] == [Action.PASS] * 4
    assert stray.request(request(PRODUCE)) is Action.STRAY_FIRST


@pytest.mark.parametrize("key", [END_TXN, ADD_PARTITIONS, PRODUCE, TXN_OFFSET_COMMIT])
def test_other_producers_do_not_matter(key: int) -> None:
    stray = StrayEndTxn()
    stray.order()
    stray.request(request(END_TXN))
    for _ in range(3):
        assert stray.request(request(key, b"app.r0.2")) is Action.PASS
    assert stray.held is not None
