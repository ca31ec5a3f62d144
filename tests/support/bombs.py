"""Record batches that are small in the log and large when a consumer decompresses them, in each codec of Kafka."""

from typing import Literal

from confluent_kafka import Message, Producer

Codec = Literal["gzip", "snappy", "lz4", "zstd"]
CODECS: tuple[Codec, ...] = ("gzip", "snappy", "lz4", "zstd")
ROOM = 1_000_000_000  # bytes; the maximum of librdkafka
DELIVERY_SECONDS = 120.0


def bomb(bootstrap_servers: str, topic: str, partition: int, codec: Codec, size: int, records: int = 1) -> tuple[int, int]:
    """Write one batch of `records` records that together expand to `size` bytes; return its first and last offset.

    A broker checks only the compressed size. Snappy compresses to 1/20 and lz4 to 1/255 of the size, so the topic must allow
    larger batches than by default for these codecs.
    """
    delivered: list[Message] = []
    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "compression.type": codec,
            "message.max.bytes": ROOM,
            "batch.size": 2_147_483_647,
            "batch.num.messages": 1_000_000,
            "queue.buffering.max.messages": 10_000_000,
            "queue.buffering.max.kbytes": 2_147_483_647,
            "linger.ms": 60_000,
        }
    )

    def on_delivery(error: object, message: Message) -> None:
        failed.append(str(error)) if error else delivered.append(message)

    value = bytes(size // records)
    for _ in range(records):
        producer.produce(topic, value, None, partition, on_delivery)
    assert producer.flush(DELIVERY_SECONDS) == 0, "a bomb was not delivered"
    assert not failed, failed
    offsets = sorted(message.offset() or 0 for message in delivered)
    assert offsets[-1] - offsets[0] == records - 1
    return offsets[0], offsets[-1]
