"""`scorer lineage`: trace the answer of an event to its model version, signer and channel move."""

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from model_registry.channels import roles
from publisher.errors import FINDING, REFUSED, Fatal
from publisher.kafka.headers import headers_of_one
from publisher.runtime.command_line import Config, From, Json, Set, To, err_console, print_data, time_range
from publisher.runtime.time_range import iso_time
from scorer.lineage import document as lineage_document
from scorer.lineage.document import Lineage
from scorer.lineage.reader import LineageReader
from scorer.settings import Settings, load

if TYPE_CHECKING:
    from scorer.lineage.recompute import Recomputation

TOLERANCE = 1e-6
MAX_EVENT_BYTES = 2_000  # of an event's key, headers and value that are printed


def lineage(
    path: Config,
    event: Annotated[
        str,
        typer.Argument(
            metavar="ID|POSITION", help="The event's id, or its position TOPIC/PARTITION/OFFSET.", show_default=False
        ),
    ],
    flags: Set = None,
    start: From = None,
    end: To = None,
    again: Annotated[
        bool,
        typer.Option("--recompute", help="Score the event again with the same version. Exit code 1 if the result differs."),
    ] = False,
    tolerance: Annotated[
        float, typer.Option(help="The largest difference between two numbers that --recompute accepts.", min=0.0)
    ] = TOLERANCE,
    as_json: Json = False,
) -> None:
    """Trace a score to its event, model version, signer and channel move. --from and --to limit the search for an id."""
    settings = load(path, flags or []).settings
    reader = LineageReader(settings)
    place = lineage_document.place_of(event, settings) or reader.with_id(event, time_range(start, end))
    explanation = reader.read(place)
    proof = _recompute(settings, explanation, tolerance) if again else None
    document = as_document(explanation, proof)
    print_data(as_json, document, lambda: as_table(document))
    for line in explanation.missing:
        err_console.print(f"not known: {line}", markup=False)
    if explanation.answer is None or (proof is not None and not proof.same):
        raise typer.Exit(FINDING)


def _recompute(settings: Settings, explanation: Lineage, tolerance: float) -> "Recomputation":
    """Score the event again with the version that answered it, with its logged inputs if the feature log has them.

    Raises:
        Fatal: The event has no answer, its inputs are not recoverable, or the version is rejected now.
        RegistryError: The version cannot be pulled.
        BackendUnavailable: A model server is unavailable.
    """
    from scorer.backends.base import ModelRefused
    from scorer.crash_isolation.trial_load import tried_loader
    from scorer.lineage.recompute import find_inputs, recompute
    from scorer.models.registry_access import pull_version

    if explanation.answer is None:
        raise Fatal(
            f"{explanation.place} has neither a score nor a dead letter, so --recompute has nothing to compare",
            "`scorer status` prints the lag of the scorers",
        )
    model = settings.model.model_copy(update={"tag": explanation.answer.digest})
    package, _ = pull_version(settings.model_copy(update={"model": model}))
    inputs = find_inputs(explanation, settings, package.signature)
    try:
        loaded = tried_loader(settings)(package)
    except ModelRefused as error:
        digest = explanation.answer.digest
        raise Fatal(f"{digest} is rejected now: {error}", "see the version's model card", REFUSED) from error
    with contextlib.closing(loaded.model):
        return recompute(explanation, loaded, tolerance, settings, inputs)


def as_document(explanation: Lineage, proof: "Recomputation | None") -> dict[str, Any]:
    """Return the document that `--json` prints: the lineage, and the recomputed score unless `proof` is None.

    A value that is not known is None.
    """
    event = explanation.event
    answer = explanation.answer
    move = explanation.move
    document: dict[str, Any] = {
        "position": str(explanation.place),
        "event": None,
        "answer": None,
        "cut_over": None,
        "move": None,
    }
    if event is not None:
        document["event"] = {
            "time": iso_time(event.timestamp()[1]),
            "key": _text(event.key()),
            "headers": {name: _text(value) for name, value in headers_of_one(event) or []},
            "value": _text(event.value()),
        }
    if answer is not None:
        document["answer"] = {"kind": answer.kind, "position": str(answer.at), **answer.record}
        document["model"] = {"version": answer.version, "digest": answer.digest, "signed_by": explanation.signer}
    if explanation.instead_of is not None:
        document["instead_of"] = {name: explanation.instead_of.get(name) for name in ("version", "digest")}
    if explanation.swap is not None:
        names = ("cut_over_offset", "scorer", "from_version", "version", "revision", "shares")
        time = iso_time(explanation.swap.get("at_ms", -1))
        cut_over = {name: explanation.swap.get(name) for name in names}
        document["cut_over"] = cut_over | {"bucket": explanation.bucket, "time": time}
    if move is not None:
        names = ("revision", "actor", "reason", "from_version", "to_version", "restores")
        about = {"roles": roles.format_roles(move.roles) or None, "time": move.at.isoformat(timespec="milliseconds")}
        document["move"] = {name: getattr(move, name) for name in names} | about
    if proof is not None:
        document["recomputed"] = {
            "same": proof.same,
            "score": proof.now,
            "decision": proof.decision,
            "rejected": proof.rejection or None,
            "inputs": "feature log" if proof.from_features else "event",
        }
    document["corrections"] = [{"position": str(each.at), **each.record} for each in explanation.corrections]
    document["not_known"] = explanation.missing
    return document


def as_table(document: dict[str, Any]) -> Table:
    """Return the document of `as_document` as a table with one line for each known value, grouped by the document's keys."""
    table = Table("", "", "", box=SIMPLE_HEAD, show_edge=False, show_header=False)
    for part, content in document.items():
        for number, (name, value) in enumerate(row for row in _rows(part, content) if row[1] not in (None, {})):
            table.add_row(part.replace("_", " ") if number == 0 else "", name, Text(str(value)))
    return table


def _rows(part: str, content: Any) -> Iterable[tuple[str, Any]]:
    if part == "corrections":
        return [(each["position"], f"{each.get('score')} by {each.get('version')}") for each in content]
    if isinstance(content, dict):
        return content.items()
    return [("", content)] if part == "position" else []


def _text(value: str | bytes | None) -> str | None:
    return value[:MAX_EVENT_BYTES].decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
