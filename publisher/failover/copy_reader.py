"""Read single copies at given offsets for `offset_translation`: each must be a copy of the expected partition."""

import time
from typing import cast

from confluent_kafka import Consumer, Message, TopicPartition

from publisher.errors import Fatal, Retriable
from publisher.failover.offset_translation import Read, Seen
from publisher.kafka import clients as kafka
from publisher.kafka import source_position
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.error_codes import END
from publisher.kafka.headers import headers_of_one
from publisher.kafka.partitions import Partition
from publisher.kafka.source_position import Position, origin_of

CALL_SECONDS = 0.1
FETCH_BYTES = 16_384  # one record is wanted: the broker sends the batch that it lies in, however large that is


class CopyReader:
    """Reads committed records.

    The function from `of` raises Retriable if a record does not arrive in `answer_seconds`, and Fatal (3) for a record that is
    not a copy of the
    expected partition.
    """

    def __init__(self, settings: KafkaSettings, client_id: str, answer_seconds: float) -> None:
        fetching = {
            "enable.partition.eof": True,
            "fetch.message.max.bytes": FETCH_BYTES,
            "fetch.queue.backoff.ms": 5,
            "fetch.wait.max.ms": 10,
        }
        self._consumer: Consumer = kafka.reader(settings, client_id, **fetching)
        self._seconds = answer_seconds

    def close(self) -> None:
        self._consumer.close()

    def of(self, copy: Partition, source: Partition, region: str) -> Read:
        """Return the reader of `copy`, whose records were first written in `source` of `region`."""

        def read(offset: int) -> Seen | None:
            message = self._first(copy, offset)
            if message is None:
                return None
            origin, at = _origin(message, copy), cast("int", message.offset())
            if origin is None or origin != Position(region, *source, origin.offset):
                raise Fatal(
                    f"{copy[0]}[{copy[1]}] holds at offset {at} a record of {origin or 'its own'}, and not only copies of "
                    f"{source[0]}[{source[1]}] in {region}",
                    "positions can be told only where a topic holds the copies of one topic and nothing else",
                    3,
                )
            return Seen(at, origin.offset)

        return read

    def first_origin(self, partition: Partition, offset: int) -> Position | None:
        """Return where the first record at or behind this offset was first written; None if it does not state it."""
        message = self._first(partition, offset)
        return None if message is None else _origin(message, partition)

    def _first(self, partition: Partition, offset: int) -> Message | None:
        """Return the first record at or behind this offset; None if none is visible."""
        self._consumer.assign([TopicPartition(*partition, offset)])
        deadline = time.monotonic() + self._seconds
        while True:
            message = self._consumer.poll(CALL_SECONDS)
            if message is None:
                if time.monotonic() > deadline:
                    raise Retriable(f"no record of {partition[0]}[{partition[1]}] came for {self._seconds:.0f} s")
                continue
            error = message.error()
            if error is None:
                return message
            if error in END:
                return None
            if not kafka.is_group_auth_noise(error):
                raise Fatal(f"{partition[0]}[{partition[1]}] cannot be read at offset {offset}: {error.str()}", exit_code=3)


def _origin(message: Message, copy: Partition) -> Position | None:
    first = origin_of(headers_of_one(message), copy)
    try:
        return None if first is None else source_position.parse(first)
    except ValueError:
        return None
