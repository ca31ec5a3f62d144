"""The commands that read versions: `pull`, `list`, `inspect`."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from model_registry import atomic_files
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
from model_registry.errors import BadReference
from model_registry.oci import digests, tags
from model_registry.untrusted_input.terminal_text import printable

if TYPE_CHECKING:
    from model_registry.package.signature import Signature
    from model_registry.stores.base import Store

RefOrFolder = Annotated[
    str,
    typer.Argument(
        metavar="REF|DIR", help="The version (HOST/PATH:TAG, oci:FOLDER:TAG), or the folder of a package.", show_default=False
    ),
]
Diff = Annotated[
    str | None,
    typer.Option(
        metavar="OTHER", help="Show the differences from OTHER to REF. OTHER is a reference, or a tag of REF's repository."
    ),
]


def pull(
    ctx: typer.Context,
    ref: Ref,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write to, new or empty.")],
    json: Json = False,
) -> None:
    """Write a version's files into a folder, and verify every byte. For a channel, pull the version that the channel names."""
    from model_registry import package

    with progress_bars() as progress:
        store, target = open_repository(ctx, ref, progress=progress)
        digest = champion_of(store, target)
        pulled = package.pull(store, digest, folder)
    value = {"name": pulled.name, "version": pulled.version, "digest": digest, "folder": str(folder)}
    print_result(json, value, f"{pulled.name}:{pulled.version}@{digest} is in {folder}")


def list_versions(ctx: typer.Context, repo: Repo, json: Json = False) -> None:
    """Show the versions, and the channels that name each of them."""
    from model_registry.channels import roles
    from model_registry.stores import resolve_index

    store, _ = open_repository(ctx, repo)
    all_tags = store.tags()
    named: dict[str, list[str]] = {}
    for channel in (name for name in tags.channels(all_tags) if name in all_tags):
        digest = store.resolve(channel).digest
        parts = roles.parse(store.manifest(digest))
        for named_digest, label in [(p.digest, f"{channel} ({p.role})") for p in parts] or [(digest, channel)]:
            named.setdefault(named_digest, []).append(label)
    rows: list[dict[str, Any]] = []
    for tag in tags.versions(all_tags):
        digest = store.resolve(tag).digest
        size = sum(blob.size for blob in resolve_index.describe_version(store, digest, version=tag).blobs)
        rows.append({"version": tag, "digest": digest, "size": size, "channels": named.get(digest, [])})
    shown = [[row["version"], digests.short(row["digest"]), row["size"], ", ".join(row["channels"])] for row in rows]
    table = format_table(["version", "digest", "bytes", "channels"], shown)
    print_result(json, {"repository": store.repository, "versions": rows}, table)


def inspect(ctx: typer.Context, ref: RefOrFolder, diff: Diff = None, key: Keys = None, json: Json = False) -> None:
    """Show the files, fields, outputs and attestations of a version or package folder, or the differences (--diff).

    The model itself is not read.
    """
    from model_registry import package
    from model_registry.channels import channel
    from model_registry.stores import resolve_index

    if Path(ref).is_dir():
        _inspect_folder(Path(ref), json=json, compared=diff is not None or bool(key))
        return
    with package.suggest_folder(ref):
        store, target = open_repository(ctx, ref)
    if diff is not None:
        beside = f"{target.bare()}:{diff}" if "/" not in diff and ":" not in diff else diff
        other, old = open_repository(ctx, beside)
        _show_difference(json, (other, champion_of(other, old)), (store, champion_of(store, target)))
        return
    resolution = channel.resolve(store, target.tag) if target.tag else None
    digest = resolution.digest if resolution else champion_of(store, target)
    version = resolve_index.describe_version(store, digest, version=target.tag or "")
    signature = package.signature_of(store, version)
    files = [{"path": file.path, "size": file.content.size, "digest": file.content.digest} for file in version.files]
    value: dict[str, Any] = {"name": version.name, "version": version.version, "digest": digest, "created": version.created}
    value |= {
        "revision": resolution.revision if resolution else 0,
        "roles": resolution.roles if resolution else (),
        "files": files,
    }
    value |= _contract_document(signature)
    value["attestations"] = _attestations(store, digest, key)
    lines: list[tuple[str, object]] = [
        (key, value[key]) for key in ("name", "version", "digest", "created", "revision") if value[key]
    ]
    lines += [(part.role, f"{part.version} {part.digest} {part.weight} %") for part in value["roles"]]
    lines += [("file", f"{file['path']} ({file['size']} bytes)") for file in files]
    attested: list[tuple[str, object]] = []
    for entry in value["attestations"]:
        signature_state = f"signed by {entry['key']}" if entry["verified"] else f"not verified: {entry['fault']}"
        attested.append(("attested", f"{entry['type']} ({signature_state})"))
    print_result(json, value, _format_version(lines, signature, attested))


def _inspect_folder(folder: Path, *, json: bool, compared: bool) -> None:
    """Print the output of `inspect` for a package folder.

    `compared` states whether --diff or --key was given. Raises BadReference if so, because they need a pushed version.
    """
    from model_registry import package
    from model_registry.oci import build_artifact
    from model_registry.package import placeholders

    if compared:
        raise BadReference(f"{folder} is a folder, and --diff and --key need a pushed version", "push the folder first")
    placeholders.check(folder)
    read = package.read(folder)
    with atomic_files.report_os_errors(f"the package {folder}"):
        files = [
            {"path": path, "size": (folder / path).stat().st_size} for path in sorted(build_artifact.walk(folder, hidden=False))
        ]
    value: dict[str, Any] = {"folder": str(folder), "files": files, "golden_examples": len(read.golden)}
    value |= _contract_document(read.signature)
    lines: list[tuple[str, object]] = [("folder", folder)]
    lines += [("file", f"{file['path']} ({file['size']} bytes)") for file in files]
    lines.append(("golden", f"{len(read.golden)} examples"))
    if read.signature is None:
        lines.append(("signature", "none: push derives it if the model allows only one"))
    print_result(json, value, _format_version(lines, read.signature, []))


def _contract_document(signature: "Signature | None") -> dict[str, Any]:
    """Return the keys `signature`, `fields` and `outputs` of the JSON document that `inspect` prints."""
    import msgspec

    from model_registry.package import field_listing

    if signature is None:
        return {"signature": None, "fields": [], "outputs": []}
    document = msgspec.json.decode(signature.to_json())
    fields, outputs = field_listing.list_fields(signature), field_listing.list_outputs(signature)
    return {"signature": document, "fields": fields, "outputs": outputs}


def _format_version(
    lines: Sequence[tuple[str, object]], signature: "Signature | None", attested: Sequence[tuple[str, object]]
) -> str:
    """Return the text that `inspect` prints: `lines`, the fields, the rest of the signature, and the attestations."""
    from model_registry.package import field_listing

    def aligned(pairs: Sequence[tuple[str, object]]) -> list[str]:
        return [f"{key:<9} {printable(shown)}" for key, shown in pairs]

    parts = aligned(lines)
    if signature:
        table = format_table(field_listing.COLUMNS, field_listing.field_rows(signature)) if signature.fields else ""
        parts += ["", *([table, ""] if table else []), *aligned(_contract(signature))]
    return "\n".join([*parts, *aligned(attested)])


def _attestations(store: "Store", digest: str, key: list[Path] | None) -> list[dict[str, Any]]:
    """Return the attestations of a version as `inspect` prints them.

    An attestation is "verified" if it is signed with one of the keys in `key`.
    """
    from model_registry.signing import attestation

    attestations = attestation.list_attestations(store, digest, trusted_keys(key), datetime.now(UTC))
    return [
        {
            "type": attested.type,
            "verified": attested.verified,
            "key": attested.key_id,
            "fault": attested.fault,
            "predicate": attested.predicate,
        }
        for attested in attestations
    ]


def _contract(signature: "Signature") -> list[tuple[str, object]]:
    """Return the lines (kind, description) that describe a version's constants, outputs, labels and decision."""
    from model_registry.package import version_difference

    lines: list[tuple[str, object]] = [
        ("constant", f"{tensor.tensor}: {version_difference.describe_tensor(tensor)}")
        for tensor in signature.inputs
        if tensor.value is not None
    ]
    lines += [
        ("made", f"{tensor.tensor}: {version_difference.describe_tensor(tensor)}")
        for tensor in signature.inputs
        if tensor.mask_of or tensor.length_of
    ]
    lines += [
        ("output", f"{output.name or 'score'}: {version_difference.describe_output(signature, output)}")
        for output in signature.outputs
    ]
    if signature.labels is not None:
        lines.append(("labels", version_difference.describe_labels(signature.labels)))
    if signature.decision is not None:
        lines.append(("decision", version_difference.describe_decision(signature)))
    if signature.batch_tolerance is not None:
        lines.append(("batch", f"numbers of a score may differ by {signature.batch_tolerance:g} between batches"))
    return lines


def _show_difference(json: bool, old: "tuple[Store, str]", new: "tuple[Store, str]") -> None:
    from model_registry import package
    from model_registry.package.version_difference import compare_versions
    from model_registry.stores import resolve_index

    (before, after) = (resolve_index.describe_version(store, digest) for store, digest in (old, new))
    difference = compare_versions(before, after, package.signature_of(old[0], before), package.signature_of(new[0], after))
    names = [{"version": v.version, "digest": digest} for v, (_, digest) in ((before, old), (after, new))]
    value = {"from": names[0], "to": names[1], **asdict(difference), "compatible": difference.compatible}
    lines = [f"{before.version} -> {after.version}"]
    for mark, paths in (("+", difference.added), ("-", difference.removed), ("~", difference.changed)):
        lines += [f"{mark} {path}" for path in paths]
    lines += [*difference.signature, *(f"not compatible: {reason}" for reason in difference.breaks)]
    if difference.unknown:
        lines.append(f"it is unknown whether events stay valid: {difference.unknown}")
    elif difference.compatible:
        lines.append(f"valid events of {before.version} are valid for {after.version}")
    print_result(json, value, "\n".join(printable(line) for line in lines))
