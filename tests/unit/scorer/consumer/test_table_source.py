"""The decision to replace the client that requests the ends of tables."""

from itertools import pairwise

import pytest
from confluent_kafka import KafkaError

from scorer.consumer.table_source import LONGEST_RENEWAL_SECONDS, ClientRenewal, needs_new_client

TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)
UNKNOWN = KafkaError(KafkaError._UNKNOWN_PARTITION)
LEADERLESS = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)


@pytest.mark.parametrize(
    ("errors", "is_needed"),
    [
        ([], False),
        ([None, None], False),
        ([TIMED_OUT, TIMED_OUT], True),
        ([None, UNKNOWN], True),  # the metadata in the client is older than the partition
        ([None, LEADERLESS], False),  # the client refreshes the metadata by itself
    ],
)
def test_a_client_is_replaced_if_it_has_no_answer_or_does_not_know_a_partition(
    errors: list[KafkaError | None], is_needed: bool
) -> None:
    assert needs_new_client(errors) is is_needed


def test_a_client_is_replaced_ever_less_often_while_no_request_succeeds() -> None:
    renewal = ClientRenewal(0.0)
    replaced = [now for now in range(1, 200) if renewal.is_due([TIMED_OUT], float(now))]
    intervals = [after - before for before, after in pairwise([0, *replaced])]
    assert intervals[:4] == [3, 5, 9, 17]
    assert all(interval == LONGEST_RENEWAL_SECONDS + 1 for interval in intervals[4:])


def test_after_a_success_a_client_is_replaced_as_soon_as_at_first() -> None:
    renewal = ClientRenewal(0.0)
    assert renewal.is_due([TIMED_OUT], 3.0)
    assert not renewal.is_due([TIMED_OUT], 6.0)
    assert not renewal.is_due([None], 6.5)
    assert renewal.is_due([TIMED_OUT], 7.0)
