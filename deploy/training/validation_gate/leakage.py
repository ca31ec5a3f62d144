"""Whether the champion has learned from the rows that it is to be judged on: then it looks better than it is. Pure.

A run records in the provenance of its version which records it froze, and up to which time it learned from them: its own
hold-out, which is later, taught it nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from publisher.kafka.partitions import Partition
from training.snapshot.rows import Rows

BUILD_TYPE = "https://scorestream.io/training/v1"
UNTIL = "learned_until_ms"
"""In `internalParameters`: the Kafka timestamp, Unix ms, of the last time whose events were trained on or chosen by."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What a version learned from: of each partition of this cluster the offsets from (inclusive) to (exclusive), where
    their time is not after `until_ms`; None: whatever their time is."""

    cluster: str
    spans: Mapping[Partition, tuple[int, int]]
    until_ms: int | None

    def rows(self, rows: Rows, cluster: str) -> int:
        """How many of these rows, which are of this cluster, are among it."""
        if cluster != self.cluster:
            return 0
        places, found = rows.places, np.zeros(len(rows), np.bool_)
        for (topic, partition), (begin, end) in self.spans.items():
            if topic in places.topics:
                here = (places.topic == places.topics.index(topic)) & (places.partition == partition)
                found |= here & (places.offset >= begin) & (places.offset < end)
        if self.until_ms is not None:
            found &= places.time_ms <= self.until_ms
        return int(found.sum())


def learned(provenance: Mapping[str, Any]) -> Learned | None:
    """As a SLSA provenance tells it; None where another builder wrote it, or it names no records."""
    definition = provenance.get("buildDefinition", {})
    if definition.get("buildType") != BUILD_TYPE:
        return None
    clusters, spans = set(), {}
    for each in definition.get("resolvedDependencies", ()):
        uri, noted = str(each.get("uri", "")), each.get("annotations", {})
        if each.get("name") == "events" and uri.startswith("kafka:"):
            cluster, topic, partition = uri.removeprefix("kafka:").split("/")
            clusters.add(cluster)
            spans[topic, int(partition)] = int(noted["from"]), int(noted["to"])
    until = definition.get("internalParameters", {}).get(UNTIL)
    return Learned(clusters.pop(), spans, until) if len(clusters) == 1 else None
