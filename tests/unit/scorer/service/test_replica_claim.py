"""Which of several processes with one replica name ends, decided by the members of their group."""

import contextlib
from collections.abc import Callable, Set

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from scorer.service.replica_claim import ReplicaClaim, ReplicaGuard, expiry_seconds
from tests.support.waiting import until
from tests.unit.scorer.minimal import minimal

SETTLED = 12.0


def test_a_process_that_was_alone_once_keeps_the_replica() -> None:
    claim = ReplicaClaim(SETTLED)
    assert not claim.lost("m", {"m"}, 0.0)
    assert claim.holds("m")
    assert not any(claim.lost("m", {"m", "a", "z"}, now) for now in (1.0, 100.0))


def test_a_process_waits_until_another_member_would_have_expired() -> None:
    claim = ReplicaClaim(SETTLED)
    assert [claim.lost("z", {"a", "z"}, now) for now in (0.0, SETTLED, SETTLED + 0.1)] == [False, False, True]


def test_the_smaller_member_id_yields_to_a_member_that_stays_twice_as_long() -> None:
    claim = ReplicaClaim(SETTLED)
    assert [claim.lost("a", {"a", "z"}, now) for now in (0.0, 2 * SETTLED, 2 * SETTLED + 0.1)] == [False, False, True]


def test_a_dead_predecessor_that_expires_has_no_effect() -> None:
    claim = ReplicaClaim(SETTLED)
    claim.lost("z", {"a", "z"}, 0.0)
    assert not claim.lost("z", {"z"}, SETTLED)
    assert claim.holds("z")


def test_a_member_that_was_dead_at_the_start_never_counts() -> None:
    claim = ReplicaClaim(SETTLED, {"a"})
    assert not any(claim.lost("z", {"a", "z"}, now) for now in (0.0, 1_000.0))


def test_former_memberships_of_this_process_do_not_count() -> None:
    claim = ReplicaClaim(SETTLED)
    claim.lost("first", {"first"}, 0.0)
    assert not any(claim.lost("second", {"first", "second"}, now) for now in (1.0, 1_000.0))


def test_a_process_that_is_no_member_releases_its_claim_and_never_yields() -> None:
    claim = ReplicaClaim(SETTLED)
    claim.lost("m", {"m"}, 0.0)
    claim.release()
    assert not any(claim.lost("m", {"a"}, now) for now in (1.0, 1_000.0))
    assert not claim.holds("m")


def test_a_process_that_was_frozen_yields_to_its_successor() -> None:
    frozen, successor = ReplicaClaim(SETTLED), ReplicaClaim(SETTLED)
    frozen.lost("a", {"a"}, 0.0)
    successor.lost("z", {"z"}, 20.0)
    frozen.release()
    assert not frozen.lost("a2", {"a2", "z"}, 30.0)
    assert not successor.lost("z", {"a2", "z"}, 60.0)
    assert frozen.lost("a2", {"a2", "z"}, 30.0 + 2 * SETTLED + 0.1)


@given(
    st.lists(st.floats(0.0, 30.0), min_size=2, max_size=4),
    st.permutations(["a", "b", "c", "d"]),
    st.lists(st.floats(0.0, 0.9), min_size=4, max_size=4),
)
def test_exactly_one_of_the_joining_processes_remains(joined: list[float], names: list[str], late: list[float]) -> None:
    members = dict(zip(names, joined, strict=False))
    claims = {name: ReplicaClaim(SETTLED) for name in members}
    for second in range(200):
        for name, offset in zip(list(claims), late, strict=False):
            now = second + offset
            present = {member for member in claims if members[member] <= now}
            if name in present and claims[name].lost(name, present, now):
                del claims[name]
    assert len(claims) == 1


def unanswered() -> Set[str]:
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.mark.parametrize(
    ("read_members", "is_lost"), [(lambda: {"m", "other"}, True), (lambda: {"m"}, False), (unanswered, False)]
)
def test_the_guard_queries_the_group_once_there_is_a_member(read_members: Callable[[], Set[str]], is_lost: bool) -> None:
    requests: list[int] = []

    def count_and_read() -> Set[str]:
        requests.append(1)
        return read_members()

    guard = ReplicaGuard(ReplicaClaim(0.05), count_and_read, check_seconds=0.01)
    with contextlib.closing(guard):
        assert not requests
        guard.member = "m"
        until((lambda: guard.lost) if is_lost else (lambda: requests), "an answer")
        assert guard.lost is is_lost


@pytest.mark.parametrize(("protocol", "seconds"), [("classic", 8.0), ("consumer", 47.0)])
def test_a_dead_member_expires_after_its_session_which_the_broker_decides_under_the_newer_protocol(
    protocol: str, seconds: float
) -> None:
    assert expiry_seconds(minimal(kafka={"group_protocol": protocol, "session_timeout_ms": 6_000})) == seconds
