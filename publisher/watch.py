"""Watches that the topics which are copied are still the same ones. A topic made again under the same name begins another
log, in which a known offset means something else; the client goes on in it without a word.

A lane commits only what was read from topics whose ids were seen a moment ago (`Watch.seen`).
"""

import logging
import threading
import time
from collections.abc import Mapping

from publisher.clusters import Cluster, Topic
from publisher.errors import Retriable
from publisher.refusals import Refused, gone, recreated

log = logging.getLogger(__name__)

PERIOD_SECONDS = 0.5
ABSENT_SECONDS = 5.0  # a broker that has just come back may not know all topics yet


class Watch:
    """A thread that asks one cluster. `found` is the last answer; `failure` ends the relay."""

    def __init__(self, cluster: Cluster, region: str, expected: Mapping[str, Topic]) -> None:
        self.region = region
        self.found: dict[str, Topic] = dict(expected)
        self.failure: Exception | None = None
        self.seen = float("-inf")
        self._cluster = cluster
        self._expected = {name: topic.id for name, topic in expected.items()}
        self._absent_since: dict[str, float] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{region}", daemon=True)
        self._thread.start()

    def add(self, topics: Mapping[str, Topic]) -> None:
        """Watch these too."""
        self._expected = self._expected | {name: topic.id for name, topic in topics.items()}

    def close(self) -> None:
        """End the thread, soon."""
        self._closing.set()

    def _run(self) -> None:
        while self.failure is None and not self._closing.is_set():
            began = time.monotonic()
            expected = self._expected
            try:
                found = self._cluster.topics(expected)
                self.failure = self._judge(expected, found, began)
            except Retriable as error:
                log.info("%s", error)
            except Exception as error:  # noqa: BLE001 - whoever runs the watch raises it
                self.failure = error
            else:
                if self.failure is None and not self._absent_since:
                    self.found = found
                    self.seen = began
            self._closing.wait(max(0.0, PERIOD_SECONDS - (time.monotonic() - began)))

    def _judge(self, expected: Mapping[str, str], found: Mapping[str, Topic], now: float) -> Refused | None:
        for name, was in expected.items():
            if name in found:
                self._absent_since.pop(name, None)
                if found[name].id != was:
                    return recreated(name, self.region, was, found[name].id)
            elif now - self._absent_since.setdefault(name, now) >= ABSENT_SECONDS:
                return gone(name, self.region)
        return None
