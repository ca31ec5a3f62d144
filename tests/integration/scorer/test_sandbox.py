"""The sandbox on a real broker: in every codec a batch that does not fit is found, and what is around it is read."""

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from publisher.kafka.clients import KafkaSettings
from publisher.kafka.sandboxed_reads import UnreadableBatch, sandboxed
from tests.support.bombs import CODECS, bomb
from tests.support.shared_broker import Broker
from tests.support.topics import settle
from tests.support.waiting import until

LIMIT, SIZE, RECORDS = 32 << 20, 120 << 20, 3


def test_an_oversized_batch_is_identified_in_every_codec(broker: Broker, admin: AdminClient, unique: str) -> None:
    """A partition for each codec."""
    servers = broker.bootstrap_servers
    settle(admin.create_topics([NewTopic(unique, len(CODECS), 1, config={"max.message.bytes": "50000000"})]))
    producer = Producer({"bootstrap.servers": servers})
    expected = {}
    for partition, codec in enumerate(CODECS):
        producer.produce(unique, b"before", None, partition)
        assert producer.flush(30) == 0
        expected[codec] = bomb(servers, unique, partition, codec, SIZE, RECORDS)
        producer.produce(unique, b"after", None, partition)
        assert producer.flush(30) == 0
    suspects = sandboxed(KafkaSettings(bootstrap_servers=servers), f"{unique}.sandbox", LIMIT)
    for partition in range(len(CODECS)):
        suspects.add((unique, partition), 0)
    values: list[tuple[int, bytes | None]] = []
    passed: list[UnreadableBatch] = []

    def cleared() -> bool:
        if (suspect := suspects.take(0.1)) is not None:
            values.extend((suspect.partition[1], row.value) for row in suspect.rows)
            passed.extend([suspect.unreadable] if suspect.unreadable else [])
        return not suspects

    try:
        until(cleared, "the end of the suspicion", every=0.0)
    finally:
        suspects.close()
    assert {batch.codec: (batch.first, batch.last) for batch in passed} == expected
    assert {batch.records for batch in passed} == {RECORDS}
    assert sorted(values) == sorted((n, value) for n in range(len(CODECS)) for value in (b"before", b"after"))
