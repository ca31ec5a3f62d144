"""Watches that the topics which are copied are still the same ones. A topic made again under the same name begins another
log, in which a known offset means something else; the client goes on in it without a word.

A lane commits only what was read from topics whose ids were seen a moment ago (`Watch.seen`).
"""

import logging
import threading
import time
from collections.abc import Iterable, Mapping

from publisher.errors import Retriable
from publisher.kafka.topics import Topic, Topics
from publisher.relay.start_position import gone, recreated

log = logging.getLogger(__name__)

PERIOD_SECONDS = 0.5
ABSENT_SECONDS = 5.0  # a broker that has just come back may not know all topics yet


class Looks:
    """A thread that asks a cluster for topics, again and again. `found` is the last answer, another object only where it says
    something else; `seen` (monotonic seconds) is when that was asked; `failure` has ended the looking."""

    def __init__(self, cluster: Topics, name: str, topics: Iterable[str]) -> None:
        self.found: Mapping[str, Topic] = {}
        self.failure: Exception | None = None
        self.seen = float("-inf")
        self._cluster = cluster
        self._names = frozenset(topics)
        self._closing = False
        self._soon = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{name}", daemon=True)
        self._thread.start()

    def hurry(self) -> None:
        self._soon.set()

    def close(self) -> None:
        self._closing = True
        self._soon.set()

    def _run(self) -> None:
        while self.failure is None and not self._closing:
            self._soon.clear()
            began = time.monotonic()
            try:
                found = self._cluster.topics(self._names)
                if self._heed(found, began):
                    self.found = self.found if found == self.found else found
                    self.seen = began
            except Retriable as error:
                log.info("%s", error)
            except Exception as error:  # noqa: BLE001 - whoever runs the watch raises it
                self.failure = error
            self._soon.wait(max(0.0, PERIOD_SECONDS - (time.monotonic() - began)))

    def _heed(self, found: Mapping[str, Topic], now: float) -> bool:  # noqa: ARG002 - for those that judge
        """Whether this answer counts; may raise."""
        return True


class Watch(Looks):
    """Expects what it was told of; a topic that was made again, or is gone, ends the relay."""

    def __init__(self, cluster: Topics, region: str, expected: Mapping[str, Topic]) -> None:
        self.region = region
        self._expected = {name: topic.id for name, topic in expected.items()}
        self._absent_since: dict[str, float] = {}
        super().__init__(cluster, region, expected)

    def add(self, topics: Mapping[str, Topic]) -> None:
        self._names |= topics.keys()
        self._expected = self._expected | {name: topic.id for name, topic in topics.items()}

    def _heed(self, found: Mapping[str, Topic], now: float) -> bool:
        for name, was in self._expected.items():
            if name in found:
                self._absent_since.pop(name, None)
                if found[name].id != was:
                    raise recreated(name, self.region, was, found[name].id)
            elif now - self._absent_since.setdefault(name, now) >= ABSENT_SECONDS:
                raise gone(name, self.region)
        return not self._absent_since
