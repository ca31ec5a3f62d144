"""`python -m tests labels`: a million labels, late and out of order, joined by `scorer labels` on a real broker.

The scores are those of two versions over 48 hours. Labels are shuffled over all partitions and up to 24 hours late; one in a
hundred arrives twice, first with a wrong outcome. No label may be lost, and every figure must equal scikit-learn's within 1e-9;
otherwise the exit code is 1.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from rich.console import Console
from sklearn import metrics
from sklearn.calibration import calibration_curve

from scorer.demo.broker.embedded import EmbeddedBroker
from scorer.scores.record import RecordEncoder
from tests.integration.scorer.rig import Rig
from tests.support.processes import command
from tests.support.topics import settle

DAY_MS = 86_400_000
PARTITIONS = 6
CHUNK = 10_000
CLOSE = 1e-9
NAMES = ("on time", "late")
console = Console(stderr=True, highlight=False, width=140)


class LabelledScores:
    """`count` scores in order of time, the true outcomes, and the labels in order of arrival: (event, outcome, Unix ms)."""

    def __init__(self, count: int, seed: int) -> None:
        source = np.random.default_rng(seed)
        self.start = int(time.time() * 1_000) - 3 * DAY_MS
        self.times = self.start + np.sort(source.integers(0, 2 * DAY_MS, count))
        self.scores = source.random(count)
        self.true = source.random(count) < self.scores**1.3
        self.version = source.integers(0, 2, count)
        doubled = source.choice(count, count // 100, replace=False)
        events = np.concatenate([doubled, np.arange(count)])
        wrong = np.concatenate([np.ones(len(doubled), np.bool_), np.zeros(count, np.bool_)])
        late = source.integers(0, DAY_MS, len(events))
        late[: len(doubled)] = late[len(doubled) :][doubled] * source.random(len(doubled))  # before the correct label
        label_times = self.times[events] + late
        order = np.lexsort((~wrong, label_times))
        self.labels = events[order], self.true[events[order]] ^ wrong[order], label_times[order]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests labels", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1_000_000, help="labels")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="figures as JSON on stdout")
    options = parser.parse_args(arguments)
    dataset = LabelledScores(options.count, options.seed)
    with tempfile.TemporaryDirectory(prefix="scorestream-labels-") as name, EmbeddedBroker() as broker:
        rig = Rig(broker.bootstrap_servers, Path(name), "labelled", labels={"topic": "labelled.labels", "value": "outcome"})
        topics = [NewTopic(topic, PARTITIONS) for topic in ("labelled.scores", "labelled.labels")]
        settle(rig.admin.create_topics(topics))
        console.print(f"writing {options.count:,} scores and {len(dataset.labels[0]):,} labels")
        write(broker.bootstrap_servers, "labelled.scores", scores(dataset))
        write(broker.bootstrap_servers, "labelled.labels", labels(dataset))
        report, figures = joined(rig, dataset)
    faults = [*compared(report, dataset, slice(None)), *figures.pop("faults")]
    figures |= {
        "scores": options.count,
        "labels": len(dataset.labels[0]),
        "lost": options.count - report["labelled"],
        "faults": faults,
    }
    for key, value in figures.items():
        console.print(f"{key}: {value}", markup=False)
    if options.json:
        print(json.dumps(figures, indent=1))
    return int(bool(faults))


def scores(dataset: LabelledScores) -> Iterable[tuple[bytes, bytes, int, int]]:
    """Yield the key, value, time and partition of each score."""
    encoders = [RecordEncoder(model="m", version=f"{n}.0.0", digest=f"sha256:{n}", role="champion", region="r") for n in (1, 2)]
    for at, (score, ms) in enumerate(zip(dataset.scores.tolist(), dataset.times.tolist(), strict=True)):
        decision, place = NAMES[score >= 0.5], ("events", at % PARTITIONS)
        (value,) = encoders[dataset.version[at]].encode(
            [f"f{at}"], [json.dumps(score).encode()], [decision], [place], [at], [ms], "scored", ms
        )
        yield b"f%d" % at, value, ms, at % PARTITIONS


def labels(dataset: LabelledScores) -> Iterable[tuple[bytes, bytes, int, int]]:
    """Yield the label records. Labels of one event share a partition, which does not depend on that of the event."""
    for event, outcome, ms in zip(*(column.tolist() for column in dataset.labels), strict=True):
        value = NAMES[outcome] if event % 2 else int(outcome)
        yield b"f%d" % event, json.dumps({"outcome": value}).encode(), ms, event * 7 % PARTITIONS


def write(servers: str, topic: str, records: Iterable[tuple[bytes, bytes, int, int]]) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for count, (key, value, ms, partition) in enumerate(records):
        producer.produce(topic, value, key, partition, timestamp=ms)
        if count % CHUNK == 0:
            producer.poll(0)
            while len(producer) > 50 * CHUNK:
                producer.poll(0.1)
    assert producer.flush(300) == 0


def joined(rig: Rig, dataset: LabelledScores) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the report of `scorer labels` on all scores, and its cost; of a part of the time only the faults."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    report = run_labels(rig)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    middle, end = dataset.start + DAY_MS // 2, dataset.start + DAY_MS
    part = np.flatnonzero((dataset.times >= middle) & (dataset.times < end))
    faults = compared(run_labels(rig, "--from", str(middle), "--to", str(end)), dataset, part)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return report, {"seconds": round(seconds, 1), "cpu_s": round(cpu, 1), "peak_mib": report["peak_mib"], "faults": faults}


def run_labels(rig: Rig, *flags: str) -> dict[str, Any]:
    script = "import resource,subprocess,sys;done=subprocess.run(sys.argv[1:]);"
    script += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss,file=sys.stderr);sys.exit(done.returncode)"
    arguments = [command("scorer"), "labels", "scorer.yaml", "--json", *flags]
    completed = subprocess.run([sys.executable, "-c", script, *arguments], cwd=rig.folder, capture_output=True, check=True)
    report: dict[str, Any] = json.loads(completed.stdout)
    return {**report, "peak_mib": round(int(completed.stderr.split()[-1]) / 1_024)}


def compared(report: dict[str, Any], dataset: LabelledScores, selection: Any) -> list[str]:
    """Return the differences between the report and the data set or scikit-learn's figures."""
    indices = np.arange(len(dataset.scores))[selection]
    faults = (
        [] if report["labelled"] == len(indices) == report["answered"] else [f"{report['labelled']} of {len(indices)} joined"]
    )
    for version in report["versions"]:
        chosen = indices[dataset.version[indices] == int(version["version"][0]) - 1]
        scores_, true = dataset.scores[chosen], dataset.true[chosen]
        shares, means = calibration_curve(true, scores_, n_bins=10)
        expected = {
            "labels": len(chosen),
            "auc": metrics.roc_auc_score(true, scores_),
            "brier": metrics.brier_score_loss(true, scores_),
            "accuracy": metrics.accuracy_score(true, scores_ >= 0.5),
            "matrix": metrics.confusion_matrix(true, scores_ >= 0.5),
            "true": shares,
            "score": means,
        }
        reported = {**version, **{name: [bucket[name] for bucket in version["calibration"]] for name in ("true", "score")}}
        for name, value in expected.items():
            if np.shape(reported[name]) != np.shape(value) or np.abs(np.array(reported[name]) - value).max() > CLOSE:
                faults.append(f"{version['version']} {name}: {reported[name]}, not {value}")
    return faults


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
