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
    """The training data of a version: records of one Kafka cluster, as offset ranges [from, to) by partition.

    The training data includes only records with a Kafka timestamp up to `until_ms` (Unix ms). If `until_ms` is None, it
    includes all records of the ranges. `logged` states whether the records are from the feature log; otherwise they are events.
    """

    cluster: str
    spans: Mapping[Partition, tuple[int, int]]
    until_ms: int | None
    logged: bool = False

    def rows(self, rows: LabelledRows, cluster: str) -> int:
        """Return how many of these rows, read from the cluster with the id `cluster`, are in the training data.

        Rows and training data are compared by the positions of their records. Two cases differ:

        - Only the rows or only the training data are from the feature log. Positions are then not comparable, so all rows up to
          `until_ms` count.
        - Both are from the feature log. An event that is scored again has a second record, possibly after the end of the range.
          Therefore rows after the ranges and up to `until_ms` count too.
        """
        if self.logged != rows.logged:
            return len(rows) if self.until_ms is None else int((rows.places.time_ms <= self.until_ms).sum())
        if cluster != self.cluster:
            return 0
        places = rows.places
        used = np.zeros(len(rows), np.bool_)
        for (topic, partition), (begin, end) in self.spans.items():
            if topic in places.topics:
                in_partition = (places.topic == places.topics.index(topic)) & (places.partition == partition)
                before_end = places.offset < end
                if self.logged and self.until_ms is not None:
                    before_end = np.ones(len(rows), np.bool_)
                used |= in_partition & (places.offset >= begin) & before_end
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
    source = _external(definition, "config", "training", "snapshot").get("from")
    return Learned(clusters.pop(), spans, until, source == "features") if len(clusters) == 1 else None


def _external(definition: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """Return an object of the external parameters of a build; an empty object if it is absent."""
    value: Any = definition.get("externalParameters")
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}
