"""The verbs that read versions: `pull`, `list`, `inspect`."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from model_registry.cli_common import (
    Json,
    Keys,
    Ref,
    Repo,
    champion_of,
    format_table,
    open_repository,
    print_result,
    progress_bars,
    trusted_keys,
)
from model_registry.oci import digests, tags
from model_registry.untrusted_input.text import printable

if TYPE_CHECKING:
    from model_registry.package.signature import Signature
    from model_registry.stores.base import Store

Diff = Annotated[
    str | None, typer.Option(metavar="OTHER", help="Show what differs from OTHER to REF: a reference, or a tag beside REF.")
]


def pull(
    ctx: typer.Context,
    ref: Ref,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New or empty.")],
    json: Json = False,
) -> None:
    """Write a version's files into a folder, every byte checked. A channel stands for the version that it names."""
    from model_registry import package

    with progress_bars() as progress:
        store, target = open_repository(ctx, ref, progress=progress)
        digest = champion_of(store, target)
        pulled = package.pull(store, digest, folder)
    value = {"name": pulled.name, "version": pulled.version, "digest": digest, "folder": str(folder)}
    print_result(json, value, f"{pulled.name}:{pulled.version}@{digest} is in {folder}")


def list_versions(ctx: typer.Context, repo: Repo, json: Json = False) -> None:
    """Show the versions, and which of them the channels name."""
    from model_registry.channels import roles
    from model_registry.stores import resolve_index

    store, _ = open_repository(ctx, repo)
    there = store.tags()
    named: dict[str, list[str]] = {}
    for channel in (name for name in tags.channels(there) if name in there):
        digest = store.resolve(channel).digest
        parts = roles.parse(store.manifest(digest))
        for at, label in [(p.digest, f"{channel} ({p.role})") for p in parts] or [(digest, channel)]:
            named.setdefault(at, []).append(label)
    rows: list[dict[str, Any]] = []
    for tag in tags.versions(there):
        digest = store.resolve(tag).digest
        size = sum(blob.size for blob in resolve_index.describe_version(store, digest, version=tag).blobs)
        rows.append({"version": tag, "digest": digest, "size": size, "channels": named.get(digest, [])})
    shown = [[row["version"], digests.short(row["digest"]), row["size"], ", ".join(row["channels"])] for row in rows]
    table = format_table(["version", "digest", "bytes", "channels"], shown)
    print_result(json, {"repository": store.repository, "versions": rows}, table)


def inspect(ctx: typer.Context, ref: Ref, diff: Diff = None, key: Keys = None, json: Json = False) -> None:
    """Show a version's files, inputs, output and attestations, or (--diff) what differs. Reads no model."""
    import msgspec

    from model_registry import package
    from model_registry.channels import channel
    from model_registry.stores import resolve_index

    store, target = open_repository(ctx, ref)
    if diff is not None:
        beside = f"{target.bare()}:{diff}" if "/" not in diff and ":" not in diff else diff
        other, old = open_repository(ctx, beside)
        _show_difference(json, (other, champion_of(other, old)), (store, champion_of(store, target)))
        return
    found = channel.resolve(store, target.tag) if target.tag else None
    digest = found.digest if found else champion_of(store, target)
    version = resolve_index.describe_version(store, digest, version=target.tag or "")
    signature = package.signature_of(store, version)
    files = [{"path": file.path, "size": file.content.size, "digest": file.content.digest} for file in version.files]
    value: dict[str, Any] = {"name": version.name, "version": version.version, "digest": digest, "created": version.created}
    value |= {"revision": found.revision if found else 0, "roles": found.roles if found else (), "files": files}
    value["signature"] = msgspec.json.decode(signature.to_json()) if signature else None
    value["attestations"] = _attestations(store, digest, key)
    lines = [(key, value[key]) for key in ("name", "version", "digest", "created", "revision") if value[key]]
    lines += [(part.role, f"{part.version} {part.digest} {part.weight} %") for part in value["roles"]]
    lines += [("file", f"{file['path']} ({file['size']} bytes)") for file in files]
    lines += _contract(signature) if signature else []
    for one in value["attestations"]:
        vouched = f"signed by {one['key']}" if one["verified"] else f"not verified: {one['fault']}"
        lines.append(("attested", f"{one['type']} ({vouched})"))
    print_result(json, value, "\n".join(f"{key:<9} {printable(shown)}" for key, shown in lines))


def _attestations(store: "Store", digest: str, key: list[Path] | None) -> list[dict[str, Any]]:
    """Return the attestations of a version as `inspect` prints them, verified if one of these keys signed them."""
    from model_registry.signing import attestation

    found = attestation.list_attestations(store, digest, trusted_keys(key), datetime.now(UTC))
    return [
        {"type": one.type, "verified": one.verified, "key": one.key_id, "fault": one.fault, "predicate": one.predicate}
        for one in found
    ]


def _contract(signature: "Signature") -> list[tuple[str, str]]:
    """What a version reads of an event, and what its score is."""
    from model_registry.package import compatibility, field_sources, json_path

    where = {
        one.name: f" at {json_path.format_path(one.path)}" if one.path else field_sources.describe_source(one)
        for one in signature.fields
    }
    lines = [("input", f"{one.name}: {compatibility.describe_type(one)}{where[one.name]}") for one in signature.fields]
    lines += [
        ("constant", f"{one.tensor}: {compatibility.describe_tensor(one)}") for one in signature.inputs if one.value is not None
    ]
    lines += [
        ("made", f"{one.tensor}: {compatibility.describe_tensor(one)}")
        for one in signature.inputs
        if one.mask_of or one.length_of
    ]
    lines += [
        ("output", f"{one.name or 'score'}: {compatibility.describe_output(signature, one)}") for one in signature.outputs
    ]
    if signature.labels is not None:
        lines.append(("labels", compatibility.describe_labels(signature.labels)))
    if signature.decision is not None:
        lines.append(("decision", compatibility.describe_decision(signature)))
    if signature.batch_tolerance is not None:
        lines.append(("batch", f"numbers of a score may depend on its batch by {signature.batch_tolerance:g}"))
    return lines


def _show_difference(json: bool, old: "tuple[Store, str]", new: "tuple[Store, str]") -> None:
    from model_registry import package
    from model_registry.package.compatibility import compare_versions
    from model_registry.stores import resolve_index

    (before, after) = (resolve_index.describe_version(store, digest) for store, digest in (old, new))
    found = compare_versions(before, after, package.signature_of(old[0], before), package.signature_of(new[0], after))
    names = [{"version": v.version, "digest": digest} for v, (_, digest) in ((before, old), (after, new))]
    value = {"from": names[0], "to": names[1], **asdict(found), "compatible": found.compatible}
    lines = [f"{before.version} -> {after.version}"]
    for mark, paths in (("+", found.added), ("-", found.removed), ("~", found.changed)):
        lines += [f"{mark} {path}" for path in paths]
    lines += [*found.signature, *(f"not compatible: {reason}" for reason in found.breaks)]
    if found.unknown:
        lines.append(f"whether events stay valid is unknown: {found.unknown}")
    elif found.compatible:
        lines.append(f"events that are good for {before.version} are good for {after.version}")
    print_result(json, value, "\n".join(printable(line) for line in lines))
