"""`scorer schema`: print the event schema of a version, or the events that a newer version would reject."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from model_registry import package
from model_registry.channels import channel
from model_registry.oci import manifest, reference
from model_registry.package.signature import Signature
from model_registry.stores.open import open_store
from model_registry.untrusted_input.terminal_text import printable
from publisher.errors import FINDING, REFUSED, USAGE, Fatal
from publisher.runtime.command_line import Json, print_json
from scorer.decoding.types import FormatMismatch
from scorer.schema_export.generate import GENERATORS
from scorer.schema_export.incompatible_changes import find_incompatible_changes
from scorer.scores import formats
from scorer.settings import load
from scorer.settings.carry import check_record


def schema(
    refs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="REF [REF]",
            help="A version (oci:FOLDER:TAG, oci:FOLDER@sha256:...) or a package folder. With --diff: OLD NEW.",
        ),
    ] = None,
    format_: Annotated[
        Literal["json-schema", "avro", "protobuf"], typer.Option("--format", help="The language of the schema.")
    ] = "json-schema",
    id_field: Annotated[
        str | None, typer.Option("--id", help="Add the id of the event to the schema, at this path (input.id).")
    ] = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="List the events for OLD that NEW would reject. Exit code 1 if there are any.")
    ] = False,
    positional: Annotated[
        bool,
        typer.Option(
            "--positional", help="With --diff: compare the order of the fields too (json-array, json-envelope, float32)."
        ),
    ] = False,
    scores: Annotated[
        bool, typer.Option("--scores", help="Print the schema of score records (avro, protobuf). This option takes no REF.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(help="With --scores: the configuration with the carried fields (output.carry).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the schema of a version's events, or with --diff the events that a newer version would reject."""
    refs = refs or []
    count = 0 if scores else 1
    if len(refs) != (2 if diff else count):
        if diff:
            raise typer.BadParameter("give OLD and NEW with --diff")
        raise typer.BadParameter("--scores takes no REF" if scores else "give one REF, or two with --diff")
    if positional and not diff:
        raise typer.BadParameter("--positional needs --diff")
    if config and not scores:
        raise typer.BadParameter("--config needs --scores")
    if diff:
        _diff(refs[0], refs[1], positional, as_json)
        return
    name, text = ("score", _score_schema(format_, config)) if scores else _event_schema(refs[0], format_, id_field)
    if as_json:
        print_json({"model": name, "format": format_, "schema": text})
    else:
        print(printable(text, lines=True))


def _event_schema(ref: str, format_: str, id_field: str | None) -> tuple[str, str]:
    name, signature = signature_of(ref)
    try:
        return name, GENERATORS[format_](signature, name, id_field)
    except FormatMismatch as error:
        raise Fatal(str(error), "change the name or the path, or use --format json-schema", USAGE) from error


def _score_schema(format_: str, config: Path | None) -> str:
    if format_ == "json-schema":
        raise typer.BadParameter(
            "score records have a schema in avro and protobuf only: add --format avro or --format protobuf"
        )
    carry = load(config).settings.output.carry if config else []
    try:
        check_record(carry, format_)
    except ValueError as error:
        raise Fatal(f"output.carry: {error}", "", USAGE) from error
    return formats.schema(format_, carry)


def _diff(old: str, new: str, positional: bool, as_json: bool) -> None:
    changes = find_incompatible_changes(signature_of(old)[1], signature_of(new)[1], positional=positional)
    if as_json:
        print_json({"compatible": not changes, "breaks": [asdict(one) for one in changes]})
    else:
        lines = [printable(f"{one.field}: {one.change}") for one in changes]
        print("\n".join(lines) or printable(f"events for {old} are valid for {new}"))
    if changes:
        raise typer.Exit(FINDING)


def signature_of(ref: str) -> tuple[str, Signature]:
    """Return the name and signature of a version in a registry, or of a package folder.

    Args:
        ref: a reference, with the channel `prod` as its default tag, or a folder.

    Raises:
        RegistryError: The version does not exist or cannot be read.
        Fatal: The version has no signature.
    """
    if (Path(ref) / package.MODEL).is_file():
        name = Path(ref).resolve().name
        signature = package.read(Path(ref)).signature
    else:
        with package.suggest_folder(ref):
            target = reference.parse(ref, base_dir=Path.cwd())
            store = open_store(target)
            digest = target.digest or channel.resolve(store, target.tag or "prod").digest
        version = manifest.parse_version(store.manifest(digest))
        name = version.name
        signature = package.signature_of(store, version)
    if signature is None:
        raise Fatal(
            f"{ref} has no {package.SIGNATURE}",
            "write a signature.json; model_registry/docs/signature.md describes it",
            REFUSED,
        )
    return name, signature
