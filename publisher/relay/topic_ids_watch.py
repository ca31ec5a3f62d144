"""Check continuously that the copied topics were not recreated.

A transaction is committed only if the topic ids were confirmed within the last seconds (`TopicIdWatch.seen`).
"""

# A topic that is recreated under the same name has a new log, in which an offset of the old log names another record. The
# client continues in the new log without an error.

import logging
import threading
import time
from collections.abc import Iterable, Mapping

from publisher.errors import Retriable
from publisher.kafka.topics import Topic, Topics
from publisher.relay.start_position import missing_topic, recreated

log = logging.getLogger(__name__)

PERIOD_SECONDS = 0.5
ABSENT_SECONDS = 5.0  # a broker that has just restarted may not know all topics yet


class TopicPoller:
    """Queries the topics of a cluster repeatedly, in a thread of its own.

    Every answer of the cluster is accepted, unless a subclass overrides `_accept`.

    Attributes:
        found: the topics in the last accepted answer, by name. The object is replaced only if its content has changed.
        seen: when the query for the last accepted answer was sent (monotonic seconds).
        failure: the error that has ended the thread; None while it runs.
    """

    def __init__(self, cluster: Topics, name: str, topics: Iterable[str]) -> None:
        self.found: Mapping[str, Topic] = {}
        self.failure: Exception | None = None
        self.seen = float("-inf")
        self._cluster = cluster
        self._names = frozenset(topics)
        self._closing = False
        self._refresh_requested = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{name}", daemon=True)
        self._thread.start()

    def request_refresh(self) -> None:
        """Start the next query at once, instead of at the end of PERIOD_SECONDS."""
        self._refresh_requested.set()

    def close(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._closing = True
        self._refresh_requested.set()

    def _run(self) -> None:
        while self.failure is None and not self._closing:
            self._refresh_requested.clear()
            began = time.monotonic()
            try:
                topics = self._cluster.topics(self._names)
                if self._accept(topics, began):
                    self.found = self.found if topics == self.found else topics
                    self.seen = began
            except Retriable as error:
                log.info("%s", error)
            except Exception as error:  # noqa: BLE001 - the owner of the thread raises it
                self.failure = error
            self._refresh_requested.wait(max(0.0, PERIOD_SECONDS - (time.monotonic() - began)))

    def _accept(self, topics: Mapping[str, Topic], now: float) -> bool:  # noqa: ARG002 - subclasses use them
        """Return whether to update `found` and `seen` with this answer. Any error that this method raises ends the thread."""
        return True


class TopicIdWatch(TopicPoller):
    """Polls the ids of topics. `failure` is set if a topic has another id than expected, or is missing for ABSENT_SECONDS."""

    def __init__(self, cluster: Topics, region: str, expected: Mapping[str, Topic]) -> None:
        self.region = region
        self._expected_ids = {name: topic.id for name, topic in expected.items()}
        self._absent_since: dict[str, float] = {}
        super().__init__(cluster, region, expected)

    def add(self, topics: Mapping[str, Topic]) -> None:
        """Also check these topics, which must keep their current ids."""
        self._names |= topics.keys()
        self._expected_ids = self._expected_ids | {name: topic.id for name, topic in topics.items()}

    def _accept(self, topics: Mapping[str, Topic], now: float) -> bool:
        for name, expected_id in self._expected_ids.items():
            if name in topics:
                self._absent_since.pop(name, None)
                if topics[name].id != expected_id:
                    raise recreated(name, self.region, expected_id, topics[name].id)
            elif now - self._absent_since.setdefault(name, now) >= ABSENT_SECONDS:
                raise missing_topic(name, self.region)
        return not self._absent_since
