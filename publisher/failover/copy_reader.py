"""Read single copied records at given offsets, for `offset_translation`.

A copied record is a record that a relay has written, with its source position in the header `x-origin`.
"""

# The reader owns one consumer without a group, and commits nothing.

import time
from typing import cast

from confluent_kafka import Consumer, Message, TopicPartition

from publisher.errors import REFUSED, Fatal, Retriable
from publisher.failover.offset_translation import CopiedRecord, ReadCopy
from publisher.kafka import acls, error_codes, source_position
from publisher.kafka import clients as kafka
from publisher.kafka.acls import READ, Right
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.error_codes import END
from publisher.kafka.headers import headers_of_one
from publisher.kafka.partitions import Partition
from publisher.kafka.source_position import Position, origin_of

CALL_SECONDS = 0.1
FETCH_BYTES = 16_384  # only one record is needed; the broker sends the whole batch of that record even if it is larger


class CopyReader:
    """Reads single committed records of partitions that contain copies.

    `for_partition` returns a function that reads one record. This function raises Retriable if the broker does not answer
    within `answer_seconds`, and Fatal (exit code 3) if the record is not a copy from the expected partition.
    """

    def __init__(self, settings: KafkaSettings, client_id: str, answer_seconds: float) -> None:
        fetching = {
            "enable.partition.eof": True,
            "fetch.message.max.bytes": FETCH_BYTES,
            "fetch.queue.backoff.ms": 5,
            "fetch.wait.max.ms": 10,
        }
        self._consumer: Consumer = kafka.reader(settings, client_id, **fetching)
        self._settings = settings
        self._seconds = answer_seconds

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def for_partition(self, copy: Partition, source: Partition, region: str) -> ReadCopy:
        """Return a function that reads one record of the partition `copy`; see `ReadCopy`.

        Args:
            copy: the partition to read, which must contain only copies from `source`.
            source: the partition in which the records were first written.
            region: the region of `source`.
        """

        def read(offset: int) -> CopiedRecord | None:
            message = self._first(copy, offset)
            if message is None:
                return None
            origin = _origin(message, copy)
            copy_offset = cast("int", message.offset())
            if origin is None or origin != Position(region, *source, origin.offset):
                raise Fatal(
                    f"{copy[0]}[{copy[1]}] does not contain only copies of {source[0]}[{source[1]}] in {region}: the record at "
                    f"offset {copy_offset} {f'is a copy of {origin}' if origin else 'is not a copy'}",
                    "a failover requires topics that contain only copies of one source topic: stop all other producers",
                    REFUSED,
                )
            return CopiedRecord(copy_offset, origin.offset)

        return read

    def first_origin(self, partition: Partition, offset: int) -> Position | None:
        """Return the original position (header `x-origin`) of the next record at or after `offset`.

        Returns None if the partition has no further record, or if the next record is not a copy.
        """
        message = self._first(partition, offset)
        return None if message is None else _origin(message, partition)

    def _first(self, partition: Partition, offset: int) -> Message | None:
        """Return the first committed record at or after this offset; None at the end of the partition."""
        self._consumer.assign([TopicPartition(*partition, offset)])
        deadline = time.monotonic() + self._seconds
        while True:
            message = self._consumer.poll(CALL_SECONDS)
            if message is None:
                if time.monotonic() > deadline:
                    raise Retriable(f"no record of {partition[0]}[{partition[1]}] arrived within {self._seconds:.0f} s")
                continue
            error = message.error()
            if error is None:
                return message
            if error in END:
                return None
            if error_codes.REFUSED.reason(error) == acls.TOPIC:
                raise acls.refused(self._settings, [Right(READ, acls.TOPIC, partition[0])])
            if not kafka.is_group_auth_noise(error):
                raise Fatal(
                    f"{partition[0]}[{partition[1]}] cannot be read at offset {offset}: {error.str()}", exit_code=REFUSED
                )


def _origin(message: Message, copy: Partition) -> Position | None:
    text = origin_of(headers_of_one(message), copy)
    try:
        return None if text is None else source_position.parse(text)
    except ValueError:
        return None
