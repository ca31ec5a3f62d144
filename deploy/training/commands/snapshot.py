"""The verb `snapshot`: freezes events and labels, copies them, joins them, and tells what there is to train on."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import typer
from rich.console import Group
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

from model_registry import files
from model_registry.package.signature import Signature, SignatureError
from publisher.errors import FINDING, REFUSED, USAGE, Fatal
from publisher.process.command_line import Config, Json, Set, print_data, table, talk
from scorer.commands.check import pulled
from scorer.events import formats
from scorer.events.decoder import Unsuited
from scorer.settings import Settings
from training.settings import Training, load
from training.snapshot import joining
from training.snapshot.files import MANIFEST, Copied, Frozen
from training.snapshot.freezing import Progress, copy, freeze
from training.snapshot.joining import PARTS, Joined
from training.snapshot.rows import Rows, Split

LOCK, FROZEN, RECORDS, ROWS = ".lock", "frozen.json", "records", "rows.json"


def snapshot(path: Config, flags: Set = None, as_json: Json = False) -> None:
    """Copy the events and labels of a window as they are now, join them, and split them by time. A copy that was broken off
    goes on as it was frozen. Exit code 1 where too few events have a label."""
    training, settings = load(path, flags or [])
    signature = _signature(training, settings)
    try:
        decoder = formats.decoder(settings, signature)
    except Unsuited as error:
        raise Fatal(f"input.format {settings.input.format} does not suit the signature: {error}", exit_code=USAGE) from None
    with _alone(training.snapshot.folder):
        folder, frozen = _unfinished(training.snapshot.folder) or _begun(training, settings)
        with _progress() as progress:
            copied = copy(settings, frozen, folder / RECORDS, progress)
        joined = joining.join(folder / RECORDS, frozen, settings, training, signature, decoder)
        told = _told(folder, copied, joined, joining.split(joined, training))
        _write(folder / ROWS, told)
    print_data(as_json, told, lambda: shown(told))
    if joined.coverage < training.labels.coverage:
        talk.print(f"only {joined.coverage:.1%} of the events have a label; labels.coverage is {training.labels.coverage:.1%}")
        raise typer.Exit(FINDING)


def shown(told: Mapping[str, Any]) -> Group:
    """Counts, what was left out and why, and a row each part."""
    records, left_out, said = told["records"], told["left_out"], told["labels"]
    counts = [
        ("events copied", f"{records['events']:,}", ""),
        ("labels copied", f"{records['labels']:,}", ""),
        ("old enough to have a label", f"{told['mature']:,}", ""),
        ("with a label", f"{told['labelled']:,}", f"{told['coverage']:.1%}"),
        *(_row("events left out", name, left_out) for name in left_out["counts"]),
        *(_row("labels", name, said) for name in said["counts"]),
    ]
    columns = ("part", "from", "to", "events", *told["classes"])
    parts = [
        (part["part"], part["from"], part["to"], f"{part['events']:,}", *(f"{n:,}" for n in part["classes"].values()))
        for part in told["parts"]
    ]
    heading = Table.grid(padding=(0, 2))
    for name in ("folder", "digest", "frozen"):
        heading.add_row(name, told[name])
    return Group(heading, table(("", "", ""), counts), table(columns, parts))


def _row(what: str, reason: str, told: Mapping[str, Any]) -> tuple[str, str, str]:
    first = told["first"].get(reason)
    return f"{what}: {reason}", f"{told['counts'][reason]:,}", f"first: {first}" if first else ""


def _told(folder: Path, copied: Copied, joined: Joined, split: Split) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "digest": copied.digest,
        "frozen": _time(copied.frozen.now_ms),
        "records": {"events": copied.records("events"), "labels": copied.records("labels")},
        **joined.summary(),
        "parts": [_part(name, rows, joined.classes) for name, rows in zip(PARTS, split, strict=True)],
    }


def _part(name: str, rows: Rows, classes: tuple[str, str]) -> dict[str, Any]:
    times, ones = rows.places.time_ms, int(rows.outcomes.sum())
    counts = dict(zip(classes, (len(rows) - ones, ones), strict=True))
    return {"part": name, "from": _time(times[0]), "to": _time(times[-1]), "events": len(rows), "classes": counts}


def _time(unix_ms: int) -> str:
    return datetime.fromtimestamp(int(unix_ms) / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _signature(training: Training, settings: Settings) -> Signature:
    """The file's that is named, else the champion's. Raises Fatal (2), RegistryError."""
    if training.signature is None:
        champion, resolution = pulled(settings)
        if champion.signature is None:
            raise Fatal(f"version {resolution.version} has no signature", "name a file: signature: signature.json", USAGE)
        return champion.signature
    try:
        return Signature.parse(training.signature.read_bytes())
    except (OSError, SignatureError) as error:
        raise Fatal(f"signature {training.signature}: {error}", "see model_registry/README.md", USAGE) from None


def _begun(training: Training, settings: Settings) -> tuple[Path, Frozen]:
    """Freeze what is there now, in a folder named by the time."""
    frozen = freeze(settings, training, time.time_ns() // 1_000_000)
    stamp = datetime.fromtimestamp(frozen.now_ms / 1_000, UTC).strftime("%Y%m%dT%H%M%S")
    folder = training.snapshot.folder / f"{stamp}{frozen.now_ms % 1_000:03}Z"
    _write(folder / FROZEN, frozen)
    return folder, frozen


def _unfinished(folder: Path) -> tuple[Path, Frozen] | None:
    """The newest snapshot, where it was frozen and not copied to its end. Raises Fatal (3)."""
    newest = max((path.parent for path in folder.glob(f"*/{FROZEN}")), default=None)
    if newest is None or (newest / RECORDS / MANIFEST).exists():
        return None
    try:
        return newest, msgspec.json.decode((newest / FROZEN).read_bytes(), type=Frozen)
    except (OSError, msgspec.MsgspecError) as error:
        raise Fatal(f"{newest / FROZEN} cannot be read: {error}", f"remove {newest}", REFUSED) from None


def _write(path: Path, value: object) -> None:
    """As a whole or not at all. Raises Fatal (3)."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(path, [msgspec.json.format(msgspec.json.encode(value), indent=2), b"\n"])
    except OSError as error:
        raise Fatal(f"{path} cannot be written: {error.strerror}", "make room, and run again", REFUSED) from None


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Raises Fatal (3) where another process works in the folder, or it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Fatal(f"{folder} cannot be made: {error.strerror}", "name another: snapshot.folder", REFUSED) from None
    with files.locked_if_free(folder / LOCK) as free:
        if not free:
            raise Fatal(f"another snapshot is under way in {folder}", "wait for its end, or set snapshot.folder", REFUSED)
        yield


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on stderr, where that is a terminal."""
    columns = (TextColumn("copying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=talk, transient=True, disable=not talk.is_terminal) as bars:
        task = bars.add_task("")
        yield lambda done, of: bars.update(task, completed=done, total=of)
