"""One round of hostile versions, as champion and as canary, at a scorer that scores events at the same time."""

import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from model_registry.channels import channel
from model_registry.channels.move_request import MoveRequest
from model_registry.errors import RegistryError
from model_registry.oci import reference
from model_registry.package import Package
from model_registry.package import push as store_package
from model_registry.package import read as read_package
from model_registry.stores.open import open_store
from tests.chaos.fuzz.played import Played, Positions, drain
from tests.integration.scorer.rig import MakeRig, Rig, events
from tests.support import hostile_models, models
from tests.support.waiting import within

PARTITIONS = 3
EVENTS = 15
CASE_SECONDS = 90.0
GOOD = "1.0.0"
LOAD_SECONDS = 20.0  # of a trial: a good model loads within it on a busy machine
Change = Callable[[Path, random.Random], None]
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    0.5,
    2**63,
    "",
    "x",
    "\x1b[31m",
    "float32",
    [],
    [[]],
    {},
    ["a"],
    {"a": 1},
    [None],
    [2**40],
)


GOLDEN = (
    '{"event": {"a": 1, "b": 2}, "score": 77}',
    '{"event": {"a": 1, "b": 2}, "score": "x"}',
    '{"event": {"a": 1, "b": 2}, "score": 1e999}',
    '{"event": {"a": "x"}, "score": 3}',
    '{"event": null, "score": null}',
    '{"score": 1}',
    "{",
    "[]",
    "\x00",
    "9" * 5_000,
    "[" * 5_000,
)


def _document(folder: Path, change: Callable[[Any], None]) -> None:
    path = folder / "signature.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def _places(document: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    rows = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    return [inner for name, part in rows for inner in ((*place, name), *_places(part, (*place, name)))]


def wrong_field(folder: Path, draw: random.Random) -> None:
    def change(document: Any) -> None:
        *front, last = draw.choice(_places(document))
        part = document
        for step in front:
            part = part[step]
        part[last] = draw.choice(VALUES)

    _document(folder, change)


def more_fields(folder: Path, draw: random.Random) -> None:
    def change(document: Any) -> None:
        document["inputs"][0][draw.choice(["shape", "default", "dtype", "field", "fields", "x", "min"])] = draw.choice(
            [*VALUES, [10**9], [-1, 10**9], [1] * 2_000]
        )

    _document(folder, change)


def truncated(folder: Path, draw: random.Random) -> None:
    path = folder / draw.choice(["model.onnx", "signature.json"])
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data))])


def flipped(folder: Path, draw: random.Random) -> None:
    path = folder / "model.onnx"
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 1, 4, 30])):
        data[draw.randrange(len(data))] = draw.randrange(256)
    path.write_bytes(bytes(data))


def wrong_golden(folder: Path, draw: random.Random) -> None:
    (folder / "golden.jsonl").write_text("\n".join(draw.choices(GOLDEN, k=draw.choice([1, 1, 3]))) + "\n")


def nested(folder: Path, draw: random.Random) -> None:
    depth = draw.choice([500, 5_000, 100_000])
    (folder / "signature.json").write_text('{"inputs": ' + "[" * depth + "]" * depth + "}")


def empty(folder: Path, draw: random.Random) -> None:
    (folder / draw.choice(["model.onnx", "signature.json"])).write_bytes(b"")


CHANGES: tuple[Change, ...] = (wrong_field, wrong_field, more_fields, truncated, flipped, flipped, wrong_golden, nested, empty)
HARMFUL: Mapping[str, Callable[[Path], None]] = {
    **hostile_models.HOSTILE,
    "shallow-tree": lambda path: hostile_models.deep_tree(path, 60_000),
    "small-expanding": lambda path: hostile_models.expanding(path, 500_000_000),
}


def package(folder: Path, draw: random.Random) -> tuple[str, Path]:
    """Create a hostile package, and return its kind and folder."""
    if draw.random() < 0.15:
        name = draw.choice(sorted(HARMFUL))
        return name, hostile_models.package(folder, HARMFUL[name])
    change = draw.choice(CHANGES)
    package_folder = models.linear_package(folder, draw.choice([2.0, 3.0]))
    change(package_folder, draw)
    return change.__name__, package_folder


def push(rig: Rig, sound: Package, folder: Path, version: str) -> None:
    """Store a folder without checks: the store sends the files of a package that was already read, here a sound one."""
    store = open_store(reference.parse("oci:./registry/model", base_dir=rig.folder))
    store_package(store, replace(sound, folder=folder), "model", version)


def move(rig: Rig, version: str, canary: int | None) -> None:
    """Move the channel without any check of the version. A canary gets the good champion: a rejected champion would hide it."""
    store = open_store(reference.parse("oci:./registry/model", base_dir=rig.folder))
    if canary:
        channel.promote(store, "prod", GOOD, MoveRequest("fuzz", "fuzz", datetime.now(UTC)))
    channel.promote(store, "prod", version, MoveRequest("fuzz", "fuzz", datetime.now(UTC)), canary=canary)


def play(make_rig: MakeRig, seed: int, count: int) -> Played:
    draw = random.Random(seed)
    played = Played(seed, "hostile versions", 0)
    rig = make_rig(model={"load_bytes": "300MiB", "load_seconds": LOAD_SECONDS}).stocked(PARTITIONS)
    positions = Positions(rig, PARTITIONS)
    sound = read_package(models.linear_package(rig.folder / "sound", 2.0))
    scorer, sent = rig.start().ready(), 0
    for number in range(count):
        version = f"9.{seed}.{number}"
        kind, folder = package(rig.folder / version, draw)
        canary = draw.choice([None, 1, 50])
        try:
            push(rig, sound, folder, version)
            move(rig, version, canary)
        except (RegistryError, ValueError) as error:
            played.answers[f"not stored: {type(error).__name__}"] += 1
            continue
        played.cases += 1
        sent += rig.emit(events(EVENTS, start=sent))
        began = time.monotonic()
        status = _decided(rig, positions, version)
        played.answers[f"{kind}: {status}"] += 1
        if status == "undecided":
            played.findings.append(f"{kind} ({version}, canary {canary}) was undecided after {time.monotonic() - began:.0f} s")
        if scorer.ended:
            played.findings.append(f"the scorer ended at {kind} ({version})")
            break
    drain(played, positions, [scorer])
    audit = rig.audit()
    played.findings += [
        f"{name}: {value}" for name, value in audit.items() if name not in ("inputs", "version_regressions") and value
    ]
    if audit["inputs"] != sent:
        played.findings.append(f"{audit['inputs']} of {sent} events were read")
    return played


def _decided(rig: Rig, positions: Positions, version: str) -> str:
    decided: list[str] = []

    def has_decision() -> bool:
        for row in rig.fleet():
            if row["state"] != "running":
                continue
            if version in row["refused"]:
                decided.append("refused")
            elif version in json.dumps({name: value for name, value in row.items() if name != "refused"}):
                decided.append("serves")
        return bool(decided)

    within(has_decision, CASE_SECONDS, positions.take_snapshot, every=0.2)
    return decided[-1] if decided else "undecided"
