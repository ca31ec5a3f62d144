"""`python -m tests.benchmarks.training.contract`: the cost of the file contract, compared with a direct call of the script.

A script reads the rows and writes one line of metrics. A search runs it once per trial; then the benchmark runs it as often in
a folder with the same files. A trial may cost at most 2 s of CPU time more than a direct call. The figures are JSON on stdout;
the exit code is 1 if a trial costs more.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from model_registry.package.signature import Decision, InputField, Output, Signature, TensorInput
from training.recipes import contract, own
from training.recipes.own import Own
from training.runs_topic.run_events import NoEvents
from training.search.search import CODE, search
from training.settings import TrainingSettings
from training.snapshot.rows import LabelledRows, Places

COLUMNS = 10
SIGNATURE = Signature(
    (TensorInput("x", "float32", tuple(InputField(f"x{n}", "float32") for n in range(COLUMNS))),),
    (Output(None, "p", 1),),
    decision=Decision(0.5, "yes", "no"),
)
SCRIPT = """
import json
from pyarrow import parquet
rows = [parquet.read_table(f"rows/{part}.parquet") for part in ("training", "validation")]
budget = int(open("budget").read())
open("metrics.jsonl", "a").write(json.dumps({"budget": budget, "auc": 1 / rows[0].num_rows}) + "\\n")
"""
PER_TRIAL = 2.0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=5, help="calls of the script by the search, and by hand")
    parser.add_argument("--rows", type=int, default=200_000, help="rows for training; a quarter of it for validation")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="scorestream-contract-"))
    try:
        figures = measured(folder, options.trials, options.rows)
    finally:
        shutil.rmtree(folder)
    print(json.dumps(figures, indent=1))
    return int(figures["a_trial_more"]["cpu"] > PER_TRIAL)


def measured(folder: Path, trials: int, count: int) -> dict[str, Any]:
    """Return the CPU and wall seconds of writing the rows, of a direct call, and of the additional cost of a trial."""
    (folder / "train.py").write_text(SCRIPT)
    space = {"rate": {"type": "float", "low": 0.0, "high": 1.0}}
    settings = TrainingSettings.model_validate(
        {
            "scorer": "scorer.yaml",
            "recipe": {"command": ["python", "train.py"], "folder": str(folder)},
            "search": {"trials": trials, "rungs": [1], "space": space},
        }
    )
    own.copy_code(settings.recipe, own.code(settings.recipe), folder / CODE)
    training, validation = rows(count, 1), rows(count // 4, 2)
    files = spent(lambda: [contract.write_rows(part, SIGNATURE, folder / "rows.parquet") for part in (training, validation)])
    search_folder = folder / "search"
    searched = spent(
        lambda: search(training, validation, SIGNATURE, settings, Own(), search_folder, lambda *_: None, NoEvents())
    )
    command = [sys.executable, str(folder / CODE / "train.py")]
    trial = search_folder / "trials" / "0000"
    by_hand = spent(lambda: [subprocess.run(command, cwd=trial, check=True) for _ in range(trials)])
    more = {kind: (searched[kind] - files[kind] - by_hand[kind]) / trials for kind in files}
    return {
        "rows": count,
        "bytes": sum(path.stat().st_size for path in (search_folder / "rows").iterdir()),
        "files": files,
        "a_call_by_hand": {kind: by_hand[kind] / trials for kind in files},
        "a_trial_more": more,
    }


def rows(count: int, seed: int) -> LabelledRows:
    generator = np.random.default_rng(seed)
    offsets = np.arange(count)
    places = Places(("in",), np.zeros(count, np.int16), np.zeros(count, np.int32), offsets, 1_000 * offsets)
    tensors = {"x": generator.normal(size=(count, COLUMNS)).astype(np.float32)}
    return LabelledRows(tensors, (generator.random(count) < 0.5).astype(np.int8), places, [b""] * count)


def spent(call: Callable[[], object]) -> dict[str, float]:
    """Return the CPU seconds of this process and its ended children, and the wall seconds, of a call."""

    def cpu() -> float:
        usages = (resource.getrusage(scope) for scope in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    before, began = cpu(), time.monotonic()
    call()
    return {"cpu": round(cpu() - before, 3), "wall": round(time.monotonic() - began, 3)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
