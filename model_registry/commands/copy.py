"""The command `copy`: copies a repository with its channels and their history to another registry or folder."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from model_registry.cli_common import Json, format_table, open_repository, print_message, print_result, progress_bars
from model_registry.errors import BadReference
from model_registry.oci import digests

if TYPE_CHECKING:
    from model_registry.channels.copy_repository import CopyPlan
    from model_registry.oci.reference import ModelReference

Source = Annotated[
    str, typer.Argument(metavar="SOURCE", help="The repository to copy: HOST/PATH or oci:FOLDER.", show_default=False)
]
Destination = Annotated[
    str,
    typer.Argument(
        metavar="DESTINATION",
        help="The repository to copy into: HOST/PATH or oci:FOLDER. It must be empty, or a copy of the same source.",
        show_default=False,
    ),
]


def copy(
    ctx: typer.Context,
    source: Source,
    destination: Destination,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be copied; copy nothing.")] = False,
    json: Json = False,
) -> None:
    """Copy versions, signatures, attestations, and channels with their history. A repeated copy transfers only new content.

    Channels keep their revisions. Content that only DESTINATION has is kept. A channel that is newer in DESTINATION is never
    overwritten.
    """
    from model_registry.channels import copy_repository

    with progress_bars() as progress:
        _, parsed_source = open_repository(ctx, source)
        _, parsed_destination = open_repository(ctx, destination)
        _check_apart(parsed_source, parsed_destination)
        to_folder = parsed_destination.kind == "oci"
        origin, _ = open_repository(ctx, source, progress=progress if to_folder else None)
        mount_from = [source] if _are_in_one_registry(parsed_source, parsed_destination) else []
        target, _ = open_repository(ctx, destination, progress=None if to_folder else progress, mount_from=mount_from)
        plan = copy_repository.plan_copy(origin, target)
        for message in plan.skipped:
            print_message(f"warning: {message}")
        if plan.signed and parsed_source.name != parsed_destination.name:
            _warn_of_name(parsed_source.name, destination)
        if not dry_run:
            copy_repository.copy(origin, target, plan, print_message if progress else lambda _: None)
    print_result(json, _document(plan, origin.repository, target.repository, dry_run), _text(plan, dry_run))


def _are_in_one_registry(source: "ModelReference", destination: "ModelReference") -> bool:
    hosts = {reference.repository.partition("/")[0] for reference in (source, destination)}
    return source.kind == destination.kind == "remote" and len(hosts) == 1


def _check_apart(source: "ModelReference", destination: "ModelReference") -> None:
    for reference in (source, destination):
        if reference.tag or reference.digest:
            raise BadReference(f"{reference} names one version, but whole repositories are copied", f"write {reference.bare()}")
    if source.repository == destination.repository:
        raise BadReference(f"source and destination are both {source}", "name another repository as the destination")


def _warn_of_name(name: str, destination: str) -> None:
    print_message(
        f"warning: the signatures are about the model {name!r}, but scorers of {destination} require that repository's name"
    )
    print_message(f"hint: copy to a repository whose path ends with /{name}, unless the copy is only a backup")


def _document(plan: "CopyPlan", source: str, destination: str, dry_run: bool) -> dict[str, Any]:
    versions = [{"version": tag, "digest": target.digest} for tag, target in plan.versions.items()]
    channels = [
        {"channel": copied.name, "revision": copied.revision, "version": copied.version, "digest": copied.target.digest}
        for copied in plan.channels
    ]
    value: dict[str, Any] = {"source": source, "destination": destination, "dry_run": dry_run, "versions": versions}
    value |= {"referrers": [*plan.referrers, *plan.signature_tags], "history": list(plan.history), "channels": channels}
    return value | {"blobs": len(plan.blobs), "bytes": plan.size}


def _text(plan: "CopyPlan", dry_run: bool) -> str:
    if plan.is_empty:
        return "the destination has everything already"
    rows = [["version", tag, digests.short(target.digest)] for tag, target in plan.versions.items()]
    rows += [["channel", f"{copied.name} -> {copied.version}", f"revision {copied.revision}"] for copied in plan.channels]
    table = format_table(["copied", "name", "state"], rows) + "\n" if rows else ""
    signatures = len(plan.referrers) + len(plan.signature_tags)
    counts = f"{len(plan.versions)} versions, {signatures} signatures and attestations, {len(plan.history)} history entries"
    outcome = "would be copied" if dry_run else "copied"
    return f"{table}{outcome}: {counts}, {len(plan.channels)} channels; {len(plan.blobs)} files with {plan.size} bytes"
