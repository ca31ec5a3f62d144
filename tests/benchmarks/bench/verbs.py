"""The duration of commands on topics of many events, from start to end, on the scorer's core."""

import resource
import subprocess
import time

import orjson

from scorer.demo.processes import executable
from tests.benchmarks.bench.counting import Figures
from tests.benchmarks.bench.stage import PARTITIONS, Stage


def compared(stage: Stage, source: str, events: int) -> Figures:
    """Measure one `scorer compare` of the two versions over all events of a topic."""
    name = stage.make("compare", "exactly-once", source=source)
    anything = ["--max-errors", "1", "--max-flips", "1", "--max-psi", "1000"]
    command = [executable("scorer"), "compare", f"{name}.yaml", "2.0.0", "--events", str(events), *anything, "--json"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    completed = subprocess.run(stage.cores.pinned(*command), cwd=stage.folder, capture_output=True, check=True)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    report = orjson.loads(completed.stdout)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "seconds": round(seconds, 2),
        "cpu_us_per_event": round(cpu / events * 1e6, 2),
        "champion_us": report["cost_us_per_event"]["champion"],
        "candidate_us": report["cost_us_per_event"]["candidate"],
        "missing": events - report["scored_by_both"],
        "duplicates": 0,
    }


def traced(stage: Stage, source: str, events: int, questions: int) -> list[Figures]:
    """Measure `scorer lineage` for positions spread over a topic of scored events, one command per question."""
    name = stage.make("lineage", "exactly-once", source=source, scores={})
    with stage.scorer(name) as running:
        for tenth in range(1, 11):
            running.until(lambda part=tenth: stage.written(f"{name}.scores") >= events * part // 10, "the scores", 0.1)  # type: ignore[misc]
    return [_traced(stage, name, source, events * number // (questions + 1)) for number in range(1, questions + 1)]


def _traced(stage: Stage, name: str, source: str, number: int) -> Figures:
    place = {"topic": source, "partition": number % PARTITIONS, "offset": number // PARTITIONS}
    command = [executable("scorer"), "lineage", f"{name}.yaml", "/".join(map(str, place.values())), "--json"]
    began = time.monotonic()
    completed = subprocess.run(stage.cores.pinned(*command), cwd=stage.folder, capture_output=True, check=True)
    seconds, lineage = time.monotonic() - began, orjson.loads(completed.stdout)
    correct = lineage["answer"]["source"] == place and lineage["move"]["revision"] == 1
    return {"seconds": round(seconds, 3), "missing": int(not correct), "duplicates": 0}
