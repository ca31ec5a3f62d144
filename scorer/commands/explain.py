"""`scorer explain`: why an event has the answer that it has."""

import contextlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from model_registry.channels import roles
from publisher.errors import FINDING, REFUSED, Fatal
from publisher.kafka.headers import headers_of_one
from publisher.runtime.command_line import Config, From, Json, Set, To, print_data, talk, time_window
from scorer.lineage import document as lineage_document
from scorer.lineage.document import Explanation
from scorer.lineage.reader import Explainer
from scorer.settings import Settings, load

if TYPE_CHECKING:
    from scorer.lineage.recompute import Proof

TOLERANCE = 1e-6
LATEST_MS = 253_402_300_800_000  # the year 10000
SHOWN_BYTES = 2_000  # of an event


def explain(
    path: Config,
    event: Annotated[
        str, typer.Argument(metavar="ID|POSITION", help="Its id, or topic/partition/offset of the input.", show_default=False)
    ],
    flags: Set = None,
    start: From = None,
    end: To = None,
    again: Annotated[
        bool, typer.Option("--recompute", help="Score it again by the same version; exit code 1 if that differs.")
    ] = False,
    tolerance: Annotated[float, typer.Option(help="What --recompute lets each number differ by.", min=0.0)] = TOLERANCE,
    as_json: Json = False,
) -> None:
    """Say why an event has its answer: version, signer, the move that put it there, who and why. --from and --to bound the
    search for an id."""
    settings = load(path, flags or []).settings
    explainer = Explainer(settings)
    place = lineage_document.place_of(event, settings) or explainer.with_id(event, time_window(start, end))
    found = explainer.explain(place)
    proof = _proof(settings, found, tolerance) if again else None
    document = as_document(found, proof)
    print_data(as_json, document, lambda: shown(document))
    for line in found.missing:
        talk.print(f"not known: {line}", markup=False)
    if found.answer is None or (proof is not None and not proof.same):
        raise typer.Exit(FINDING)


def _proof(settings: Settings, found: Explanation, tolerance: float) -> "Proof":
    """Raises Fatal, RegistryError, and Away where a model server is."""
    from scorer.backends import ModelRefused
    from scorer.commands.check import pulled
    from scorer.crash_isolation.trial_load import tried_loader
    from scorer.lineage.recompute import recompute

    if found.answer is None:
        raise Fatal(f"{found.place} has no answer to compute again", "see scorer status for how far the scorers are")
    model = settings.model.model_copy(update={"tag": found.answer.digest})
    package, _ = pulled(settings.model_copy(update={"model": model}))
    try:
        loaded = tried_loader(settings)(package)
    except ModelRefused as error:
        raise Fatal(f"{found.answer.digest} is refused now: {error}", "see the version's model card", REFUSED) from error
    with contextlib.closing(loaded.model):
        return recompute(found, loaded, tolerance)


def as_document(found: Explanation, proof: "Proof | None") -> dict[str, Any]:
    """What was found, as JSON has it; what is not known is null."""
    event, answer, move = found.event, found.answer, found.move
    document: dict[str, Any] = {"position": str(found.place), "event": None, "answer": None, "cut_over": None, "move": None}
    if event is not None:
        document["event"] = {
            "time": _time(event.timestamp()[1]),
            "key": _text(event.key()),
            "headers": {name: _text(value) for name, value in headers_of_one(event) or []},
            "value": _text(event.value()),
        }
    if answer is not None:
        document["answer"] = {"kind": answer.kind, "position": str(answer.at), **answer.record}
        document["model"] = {"version": answer.version, "digest": answer.digest, "signed_by": found.signer}
    if found.instead_of is not None:
        document["instead_of"] = {name: found.instead_of.get(name) for name in ("version", "digest")}
    if found.swap is not None:
        names = ("cut_over_offset", "scorer", "from_version", "version", "revision", "shares")
        time = _time(found.swap.get("at_ms", -1))
        document["cut_over"] = {name: found.swap.get(name) for name in names} | {"bucket": found.bucket, "time": time}
    if move is not None:
        told = ("revision", "actor", "reason", "from_version", "to_version", "restores")
        about = {"roles": roles.shown(move.roles) or None, "time": move.at.isoformat(timespec="milliseconds")}
        document["move"] = {name: getattr(move, name) for name in told} | about
    if proof is not None:
        document["recomputed"] = {
            "same": proof.same,
            "score": proof.now,
            "decision": proof.decision,
            "rejected": proof.why or None,
        }
    document["corrections"] = [{"position": str(each.at), **each.record} for each in found.corrections]
    document["not_known"] = found.missing
    return document


def shown(document: dict[str, Any]) -> Table:
    """A line for each thing that is known, by what it is of."""
    made = Table("", "", "", box=SIMPLE_HEAD, show_edge=False, show_header=False)
    for part, held in document.items():
        for number, (name, value) in enumerate(row for row in _rows(part, held) if row[1] not in (None, {})):
            made.add_row(part.replace("_", " ") if number == 0 else "", name, Text(str(value)))
    return made


def _rows(part: str, held: Any) -> Iterable[tuple[str, Any]]:
    if part == "corrections":
        return [(each["position"], f"{each.get('score')} by {each.get('version')}") for each in held]
    if isinstance(held, dict):
        return held.items()
    return [("", held)] if part == "position" else []


def _time(unix_ms: int) -> str | None:
    """Return the time as ISO 8601; None for none, and for one beyond the year 9999: producers write any 64 bits."""
    if not 0 <= unix_ms < LATEST_MS:
        return None
    return datetime.fromtimestamp(unix_ms / 1_000, UTC).isoformat(timespec="milliseconds")


def _text(value: str | bytes | None) -> str | None:
    return value[:SHOWN_BYTES].decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
