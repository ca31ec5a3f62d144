"""One model end to end: `init` and its completion, push, promote, `scorer run` on a real broker, comparison of every score."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer

from tests.benchmarks.bench.machine import cpu_seconds
from tests.benchmarks.models.cases import EXTENSIONS, Case, Event
from tests.benchmarks.models.direct import Direct, answer, relative_error
from tests.integration.scorer.rig import Rig, until

CLOSE = 1e-5
GOLDEN = 3


@dataclass(frozen=True, slots=True)
class Ground:
    """A case's events, the outputs of ONNX Runtime for each single event, and the package."""

    case: Case
    events: Sequence[Event]
    direct: Direct
    answers: Sequence[dict[str, Any]]
    package: Path
    signature: dict[str, Any]
    gaps: int


def ground(case: Case, folder: Path, share: float) -> Ground:
    """Draw a `share` of the case's events, and make the package as a user does."""
    folder.mkdir()
    random = np.random.default_rng(7)
    events = [case.draw(random) for _ in range(max(8, int(case.count * share)))]
    model = folder / f"{case.name}.onnx"
    case.write(model)
    direct = Direct(case, model)
    answers = direct.answers(events)
    package, gaps = drafted(case, events, folder)
    signature = json.loads((package / "signature.json").read_text())
    case.complete(signature)
    complete(package, case, signature, events, answers)
    return Ground(case, events, direct, answers, package, signature, gaps)


def drafted(case: Case, events: Sequence[Event], folder: Path) -> tuple[Path, int]:
    """Run `init` for a model and example events; return the package and the number of gaps."""
    (folder / "examples.jsonl").write_text("".join(json.dumps(case.example(event)) + "\n" for event in events[:GOLDEN]))
    flags = ["--example", "examples.jsonl"]
    if case.labels:
        (folder / "labels.txt").write_text("".join(f"{label}\n" for label in case.labels))
        flags += ["--labels", "labels.txt"]
    if case.extensions:
        flags += ["--op-domain", EXTENSIONS]
    rig = Rig("127.0.0.1:1", folder, case.name)
    completed = rig.run("model-registry", "init", f"{case.name}.onnx", *flags, "--json")
    report = json.loads(completed.stdout)
    return folder / report["folder"], len(report["gaps"])


def complete(
    package: Path, case: Case, signature: dict[str, Any], events: Sequence[Event], answers: Sequence[dict[str, Any]]
) -> None:
    """Complete the package as a user does: the signature, the golden examples, and the model card."""
    (package / "signature.json").write_text(json.dumps(signature, indent=1))
    golden = [
        {"event": case.example(event), "score": answer(outputs, signature), "tolerance": 1e-4}
        for event, outputs in zip(events[:GOLDEN], answers, strict=False)
    ]
    (package / "golden.jsonl").write_text("".join(json.dumps(line) + "\n" for line in golden))
    (package / "README.md").write_text(f"# {package.name}\n\nRandom weights: its scores mean nothing.\n")


def served(prepared: Ground, package: Path, rig: Rig) -> dict[str, Any]:
    """Push, promote, produce, run and compare; return the figures, with the `differences` from ONNX Runtime."""
    case = prepared.case
    rig.push(package, "1.0.0", *(("--op-domain", EXTENSIONS) if case.extensions else ()))
    rig.promote("1.0.0")
    rig.create()
    scorer = rig.start().ready()
    assert rig.answered() == 0
    before = cpu_seconds(scorer.process.pid)
    produce(rig, case, prepared.events)
    until(lambda: rig.answered() == len(prepared.events), f"{len(prepared.events)} answers")
    spent = cpu_seconds(scorer.process.pid) - before
    batches, rows = (scorer.metric(f"scorer_batch_events_{name}") for name in ("count", "sum"))
    assert scorer.stop() == 0, scorer.said
    worst, differences = compared(prepared, rig.scores())
    rig.assert_clean(events=len(prepared.events))
    batch = max(1, round(rows / batches))
    return {
        "events": len(prepared.events),
        "open_after_init": prepared.gaps,
        "largest_difference": worst,
        "differences": differences,
        "batch": batch,
        "scorer_cpu_us": round(spent / len(prepared.events) * 1e6, 1),
        "onnx_runtime_cpu_us": round(prepared.direct.cpu_us(prepared.events, batch), 1),
    }


def produce(rig: Rig, case: Case, events: Sequence[Event]) -> None:
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers, "linger.ms": 5})
    for number, event in enumerate(events):
        value, headers = case.record(number, event)
        producer.produce(rig.events_topic, value, f"k{number % 20}".encode(), headers=headers)  # type: ignore[arg-type]
        producer.poll(0)
    assert producer.flush(60) == 0


def compared(prepared: Ground, records: Sequence[dict[str, Any]]) -> tuple[float, list[str]]:
    """Return the largest difference, and the faults: missing, duplicate or different scores, and wrong carried fields."""
    wrong, worst = [], 0.0
    scores = {record["id"]: record for record in records}
    if len(records) != len(prepared.events):
        wrong.append(f"{len(records)} scores of {len(prepared.events)} events")
    for number, (event, outputs) in enumerate(zip(prepared.events, prepared.answers, strict=True)):
        record = scores.get(f"e{number}")
        if record is None:
            wrong.append(f"e{number} has no score")
            continue
        error = relative_error(record["score"], outputs, prepared.signature)
        worst = max(worst, error)
        if not error <= CLOSE:
            wrong.append(f"e{number} differs by {error:.1e}: {json.dumps(record['score']):.200}")
        if record.get("carried") != prepared.case.carried(event):
            wrong.append(f"e{number} carries {record.get('carried')}")
    if len({json.dumps(record["score"]) for record in records}) < len(records) / 2:
        wrong.append("most scores are the same: the comparison would not notice events that are mixed up")
    return worst, wrong
