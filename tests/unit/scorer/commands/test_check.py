"""What `scorer check` reports of tables."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from scorer.commands import check
from scorer.topics import DescribedTopic
from tests.unit.scorer.minimal import minimal


class _AdminWithoutRights:
    """An admin client that may not describe brokers."""

    def list_topics(self, **_: Any) -> None:
        raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))


@pytest.mark.parametrize(("partitions", "finding_count"), [(2, 1), (3, 0)])
def test_a_table_with_other_partitions_than_the_input_is_not_reported_as_fit(partitions: int, finding_count: int) -> None:
    settings = minimal(tables={"customers": {"topic": "customers.features"}})
    described = {
        "in": DescribedTopic("in", 2, 1_000_000),
        "customers.features": DescribedTopic("customers.features", partitions, 1_000_000, cleanup_policy="compact"),
    }
    assert len(list(check._tables(settings, described, _AdminWithoutRights()))) == finding_count  # type: ignore[arg-type]
