"""Follow the status topic for notices of channel moves, so that the registry is polled at once, and for records of our own key.

A lost notice or an unreadable topic only delays the move until the next poll.
"""

import logging
import threading
import time
from collections.abc import Callable

from confluent_kafka import OFFSET_END, Consumer, KafkaException, Message, TopicPartition

from publisher.kafka import clients as kafka
from publisher.kafka.error_codes import REFUSED
from publisher.kafka.skipped_records import SkippedRecords
from scorer.observability import status_record
from scorer.observability.status_record import notice_key
from scorer.settings import Settings

log = logging.getLogger(__name__)

POLL_SECONDS = 0.25  # how late it may close
PAUSE_SECONDS = 1.0  # after an error
ANSWER_SECONDS = 10.0
MOVED_SECONDS = 0.5  # between two calls of `moved`: a flood of notices must not become one of questions to the registry


class CallCoalescer:
    """Merges calls within `seconds` into one. Pure: times are monotonic seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._pending = False
        self._last = float("-inf")

    def add(self) -> None:
        """Request a call."""
        self._pending = True

    def due(self, now: float) -> bool:
        """Return whether a call is due; it covers all requests so far."""
        if not self._pending or now < self._last + self._seconds:
            return False
        self._pending, self._last = False, now
        return True


class ChannelMoveListener:
    """Calls `moved` for each notice of the channel `model.tag`, and `own` with each record of our key, from its own thread.

    `deaf`: the topic cannot be read.
    """

    def __init__(
        self,
        settings: Settings,
        moved: Callable[[], None] = lambda: None,
        own: Callable[[Message], None] = lambda _: None,
        skipped: SkippedRecords | None = None,
    ) -> None:
        self.deaf = False
        self._skipped = skipped or SkippedRecords(log)
        self._settings = settings
        self._moved = moved
        self._own = own
        self._noticed = CallCoalescer(MOVED_SECONDS)
        self._key = notice_key(settings.model.tag).encode()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="notices", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=5)

    def _listen(self) -> None:
        """Read the status topic until `close`. Records are few and small; the fetch returns as soon as one arrives."""
        properties = {"auto.offset.reset": "latest", "fetch.wait.max.ms": 2_000, "queued.max.messages.kbytes": 1_024}
        consumer = kafka.reader(self._settings.kafka, f"{self._settings.owner}.notices", **properties)
        topic = self._settings.status_topic
        try:
            found = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
            consumer.assign([TopicPartition(topic, number, OFFSET_END) for number in found.partitions])
            while not self._closing.is_set():
                self._take(consumer)
                if self._noticed.due(time.monotonic()):
                    log.info("the channel %s has moved; asking the registry", self._settings.model.tag)
                    self._moved()
        except KafkaException as error:
            self.deaf = True
            log.warning("no notices from %s, the tag is polled all the same: %s", topic, error.args[0])
        finally:
            consumer.close()

    def _take(self, consumer: Consumer) -> None:
        message = consumer.poll(POLL_SECONDS)
        if message is None:
            return
        if (error := message.error()) is not None:
            if kafka.is_group_auth_noise(error):
                return
            if error.fatal() or error in REFUSED:
                raise KafkaException(error)
            log.info("notices: %s", error.str())
            self._closing.wait(PAUSE_SECONDS)
        elif message.key() == self._key:
            self._noticed.add()
        elif message.key() == self._settings.owner.encode():
            if message.value() is not None and status_record.parse(message.value()) is None:
                place = message.topic() or "", message.partition() or 0, message.offset() or 0
                self._skipped.skip(*place, "it has the key of this scorer, and is no status record")
            self._own(message)
