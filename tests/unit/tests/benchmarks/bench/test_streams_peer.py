"""The Kafka Streams peer of the joined drain: its jars, and the check of its results."""

import numpy as np

from tests.benchmarks.bench.streams.peer import TOLERANCE, Results, count_wrong, peer_jars


def test_the_jars_of_the_peer_include_its_libraries_once() -> None:
    names = [jar.name for jar in peer_jars()]
    assert len(names) == len(set(names))
    artifacts = {jar.artifact for jar in peer_jars()}
    assert {"kafka-streams", "kafka-clients", "rocksdbjni", "onnxruntime", "jackson-core"} <= artifacts


def test_only_results_of_the_expected_events_with_another_score_are_wrong() -> None:
    expected = np.array([0.1, 0.2, 0.3])
    results = Results(np.array([2, 0, 1, 7]), np.zeros(4), np.array([0.3, 0.1 + 2 * TOLERANCE, float("nan"), 9.0]))
    assert count_wrong(results, expected) == 2
