"""Record batches that are small in the log and large when a consumer decompresses them, in each codec of Kafka."""

from typing import Literal

from confluent_kafka import Message, Producer

Codec = Literal["gzip", "snappy", "lz4", "zstd"]
CODECS: tuple[Codec, ...] = ("gzip", "snappy", "lz4", "zstd")
ROOM = 1_000_000_000  # bytes, the most that a client compresses
DELIVERY_SECONDS = 120.0


def bomb(bootstrap_servers: str, topic: str, partition: int, codec: Codec, size: int, records: int = 1) -> tuple[int, int]:
    """Write one batch of `records` records that together expand to `size` bytes: its first and its last offset.

    A broker checks the compressed size alone. Snappy compresses to a twentieth, lz4 to a 255th, so that the topic must take
    larger batches than usual in these codecs.
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
