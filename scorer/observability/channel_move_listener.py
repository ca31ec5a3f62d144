"""Read notices of channel moves, and status records with the key of this scorer, from the status topic.

After a notice the scorer polls the registry at once. Without notices, it finds a move with its next regular poll.
"""

import logging
import threading
import time
from collections.abc import Callable

from confluent_kafka import OFFSET_END, Consumer, KafkaException, Message, TopicPartition

from publisher.kafka import clients as kafka
from publisher.kafka.error_codes import REFUSED
from publisher.kafka.skipped_records import SkippedRecords
from publisher.runtime.abandonable_call import ABANDON_SECONDS
from scorer.observability import status_record
from scorer.observability.status_record import notice_key
from scorer.settings import Settings

log = logging.getLogger(__name__)

POLL_SECONDS = 0.25  # usually the longest delay of `close`
PAUSE_SECONDS = 1.0  # after an error
ANSWER_SECONDS = 10.0  # the time limit of the request for the partitions
MOVED_SECONDS = 0.5  # between two calls of `on_move`: many notices must not cause as many requests to the registry


class CallCoalescer:
    """Limits the rate of a call: several requests become one call, and at least `seconds` pass between two calls.

    The object only decides when a call is due. Its user makes the call, and passes the time in monotonic seconds.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._pending = False
        self._last = float("-inf")

    def add(self) -> None:
        """Request a call."""
        self._pending = True

    def due(self, now: float) -> bool:
        """Return whether the caller must make the call now. If so, all earlier requests are cleared."""
        if not self._pending or now < self._last + self._seconds:
            return False
        self._pending = False
        self._last = now
        return True


class ChannelMoveListener:
    """Reads the status topic in a background thread until `close`.

    Args:
        settings: the settings of the worker.
        on_move: a function to call in the background thread after notices that the channel `model.tag` was moved. Several
            notices may cause only one call.
        own: a function to call in the background thread with each record that has the key of this scorer.
        skipped: the counter of unreadable records.

    Attributes:
        unreadable: whether reading has ended because the topic cannot be read.
    """

    def __init__(
        self,
        settings: Settings,
        on_move: Callable[[], None] = lambda: None,
        own: Callable[[Message], None] = lambda _: None,
        skipped: SkippedRecords | None = None,
    ) -> None:
        self.unreadable = False
        self._skipped = skipped or SkippedRecords(log)
        self._settings = settings
        self._on_move = on_move
        self._own = own
        self._moves = CallCoalescer(MOVED_SECONDS)
        self._key = notice_key(settings.model.tag).encode()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="notices", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the background thread. A request that is in progress is abandoned after ABANDON_SECONDS."""
        self._closing.set()
        self._thread.join(ABANDON_SECONDS)

    def _listen(self) -> None:
        """Read new records of the status topic until `close`. A fetch returns as soon as a record arrives."""
        properties = {"auto.offset.reset": "latest", "fetch.wait.max.ms": 2_000, "queued.max.messages.kbytes": 1_024}
        consumer = kafka.reader(self._settings.kafka, f"{self._settings.owner}.notices", **properties)
        topic = self._settings.status_topic
        try:
            partitions = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, OFFSET_END) for number in partitions])
            while not self._closing.is_set():
                self._poll(consumer)
                if self._moves.due(time.monotonic()):
                    log.info("the channel %s has moved; polling the registry", self._settings.model.tag)
                    self._on_move()
        except KafkaException as error:
            self.unreadable = True
            log.warning(
                "cannot read channel-move notices from topic %s; the registry is still polled: %s", topic, error.args[0]
            )
        finally:
            consumer.close()

    def _poll(self, consumer: Consumer) -> None:
        message = consumer.poll(POLL_SECONDS)
        if message is None:
            return
        if (error := message.error()) is not None:
            if kafka.is_group_auth_noise(error):
                return
            if error.fatal() or error in REFUSED:
                raise KafkaException(error)
            log.info("reading channel-move notices: %s", error.str())
            self._closing.wait(PAUSE_SECONDS)
        elif message.key() == self._key:
            self._moves.add()
        elif message.key() == self._settings.owner.encode():
            if message.value() is not None and status_record.parse(message.value()) is None:
                position = message.topic() or "", message.partition() or 0, message.offset() or 0
                self._skipped.skip(*position, "it has the key of this scorer but is not a status record")
            self._own(message)
