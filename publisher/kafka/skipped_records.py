"""Unreadable records that are skipped: counted by topic and logged. Counting is thread-safe."""

import logging
from collections import Counter

SHOWN = 5
"""The number of skipped records per topic that are logged one by one. Later only the 10th, the 100th and so on are logged."""


class SkippedRecords:
    """Counts and logs the unreadable records that a reader skips. `counts` has the number of records by topic."""

    def __init__(self, log: logging.Logger) -> None:
        self.counts: Counter[str] = Counter()
        self._log = log

    def skip(self, topic: str, partition: int, offset: int, fault: object) -> None:
        """Count a skipped record. Log its position and fault, unless many records of the topic were logged before (SHOWN)."""
        self.counts[topic] += 1
        count = self.counts[topic]
        if count <= SHOWN or str(count).strip("0") == "1":
            line = "%s[%d]@%d is skipped as unreadable: %.300s (%d of this topic so far)"
            self._log.warning(line, topic, partition, offset, fault, count)
