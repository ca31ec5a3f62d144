"""Fetch the events of one batch from a source, within limits on events and bytes."""

import time
from collections.abc import Callable

from scorer.decoding.batch import End
from scorer.fetch.source import FetchedEvents, FetchSource

BATCH_BYTES = 16 * 1_024 * 1_024  # the most bytes of the events of a batch; one event of any size is always taken


class BatchFetcher:
    """Fetches the events of batches from a source. `end` is the reason why the last fetch stopped."""

    def __init__(self) -> None:
        self.end: End = "empty"
        self._largest = 0

    def take(self, source: FetchSource, wait: float, limit: Callable[[int], int], until: float) -> FetchedEvents:
        """Fetch the available events of a batch. If a failure of the client arrives before the first event, return only it.

        Args:
            source: the source of the events.
            wait: how long to wait for the first event, in seconds.
            limit: a function from the timestamp of the first event, in Unix ms, to the maximum number of events.
            until: the time until which to wait for further events, in monotonic seconds.
        """
        self.end = "empty"
        first = source.first(wait)
        if first is None:
            return source.finish()
        most = limit(first)
        while (more := chunk(most - source.count, source.size, max(source.largest, self._largest))) > 0:
            if source.more(more, max(0.0, until - time.monotonic())) < more:
                break
        else:
            self.end = "events" if source.count >= most else "bytes"
        self._largest = source.largest
        return source.finish()


def chunk(events: int, size: int, largest: int) -> int:
    """Return how many events to read next, so that the batch is expected to stay within BATCH_BYTES; 0 if it is full.

    Args:
        events: how many more events the batch may contain.
        size: the size in bytes of the events that were read so far.
        largest: the size in bytes of the largest recent event.
    """
    if events <= 0 or size >= BATCH_BYTES:
        return 0
    return max(1, min(events, (BATCH_BYTES - size) // max(1, largest)))
