"""The check for leakage: a champion that was trained on rows of its evaluation looks better than it is. Pure.

The provenance of a version names the record ranges that its training run read, and the time up to which it trained on them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from publisher.kafka.partitions import Partition
from training.snapshot.rows import LabelledRows

BUILD_TYPE = "https://scorestream.io/training/v1"
UNTIL = "learned_until_ms"
"""The key in a provenance's `internalParameters`: the Kafka timestamp (Unix ms) up to which the run trained on events."""


@dataclass(frozen=True, slots=True)
class Learned:
    """The training data of a version: records of one cluster, as offset ranges [from, to) by partition.

    Only records with a Kafka timestamp up to `until_ms` (Unix ms) belong to it; all records if `until_ms` is None.
    """

    cluster: str
    spans: Mapping[Partition, tuple[int, int]]
    until_ms: int | None

    def rows(self, rows: LabelledRows, cluster: str) -> int:
        """Return how many of these rows are in the training data.

        `cluster` is the id of the cluster that the rows come from.
        """
        if cluster != self.cluster:
            return 0
        places = rows.places
        used = np.zeros(len(rows), np.bool_)
        for (topic, partition), (begin, end) in self.spans.items():
            if topic in places.topics:
                in_partition = (places.topic == places.topics.index(topic)) & (places.partition == partition)
                used |= in_partition & (places.offset >= begin) & (places.offset < end)
        if self.until_ms is not None:
            used &= places.time_ms <= self.until_ms
        return int(used.sum())


def learned(provenance: Mapping[str, Any]) -> Learned | None:
    """Read the training data from a SLSA provenance.

    Returns None if the build type is unknown, or if the events are not from exactly one cluster.
    """
    definition = provenance.get("buildDefinition", {})
    if definition.get("buildType") != BUILD_TYPE:
        return None
    clusters = set()
    spans = {}
    for dependency in definition.get("resolvedDependencies", ()):
        uri = str(dependency.get("uri", ""))
        noted = dependency.get("annotations", {})
        if dependency.get("name") == "events" and uri.startswith("kafka:"):
            cluster, topic, partition = uri.removeprefix("kafka:").split("/")
            clusters.add(cluster)
            spans[topic, int(partition)] = int(noted["from"]), int(noted["to"])
    until = definition.get("internalParameters", {}).get(UNTIL)
    return Learned(clusters.pop(), spans, until) if len(clusters) == 1 else None
