"""The decision whether the client that asks for the ends of tables is replaced."""

import pytest
from confluent_kafka import KafkaError

from scorer.consumer.table_source import needs_new_client

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
