"""The `model-registry` command. stdout is data, stderr is talk; exit codes: 0 ok, 2 usage, 3 refused or not there,
4 unreachable. What a command needs is imported when it runs, so that `--help` is quick."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from model_registry.channel import Move
    from model_registry.reference import Reference
    from model_registry.stores import Store


class Commands(TyperGroup):
    """The commands, their errors as one line and a hint."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Ends with the error's exit code."""
        from model_registry.errors import RegistryError

        try:
            return super().invoke(ctx)
        except RegistryError as error:
            typer.echo(f"error: {_plain(str(error))}", err=True)
            if error.hint:
                typer.echo(f"hint: {_plain(error.hint)}", err=True)
            raise typer.Exit(error.exit_code) from None


app = typer.Typer(
    cls=Commands,
    help="Store model versions in OCI registries, and move the channels that serve them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Ref = Annotated[str, typer.Argument(metavar="REF", help="oci:FOLDER:TAG or oci:FOLDER@sha256:...", show_default=False)]
Repo = Annotated[str, typer.Argument(metavar="REPO", help="oci:FOLDER, one folder a model.", show_default=False)]
Channel = Annotated[str, typer.Option(help="The tag that moves.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


@app.command()
def push(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="model.onnx, signature.json, golden.jsonl, README.md.")],
    ref: Ref,
    json: Json = False,
) -> None:
    """Store a folder as a version. Name and version come from REF. SOURCE_DATE_EPOCH, if set, is recorded as its time."""
    from model_registry import package

    store, target = _open(ref, tag=True)
    pushed = package.push(store, folder, target.name, str(target.tag), created=_created())
    value = {"name": target.name, "version": target.tag, "digest": pushed.digest}
    _print(json, value, f"{target.name}:{target.tag}@{pushed.digest}")


@app.command("list")
def list_versions(repo: Repo, json: Json = False) -> None:
    """Show the versions, and which of them the channels name."""
    from model_registry import manifest, tags

    store, _ = _open(repo)
    there = store.tags()
    channels = {name: store.resolve(name).digest for name in tags.channels(there) if name in there}
    rows: list[dict[str, Any]] = []
    for tag in tags.versions(there):
        digest = store.resolve(tag).digest
        size = sum(blob.size for blob in manifest.parse_version(store.manifest(digest)).blobs)
        named = [name for name, at in channels.items() if at == digest]
        rows.append({"version": tag, "digest": digest, "size": size, "channels": named})
    table = [[row["version"], _short(row["digest"]), row["size"], ", ".join(row["channels"])] for row in rows]
    _print(json, {"repository": store.repository, "versions": rows}, ["version", "digest", "bytes", "channels"], table)


@app.command()
def inspect(ref: Ref, json: Json = False) -> None:
    """Show what a version consists of, its signature included. Reads no model."""
    from model_registry import channel, manifest, package
    from model_registry.signature import Signature

    store, target = _open(ref)
    found = channel.resolve(store, target.tag) if target.tag else None
    digest = found.digest if found else str(_wanted(target).digest)
    version = manifest.parse_version(store.manifest(digest))
    stated = next((file.content for file in version.files if file.path == package.SIGNATURE), None)
    signature = Signature.parse(b"".join(store.blob(stated))) if stated else None
    files = [{"path": file.path, "size": file.content.size, "digest": file.content.digest} for file in version.files]
    value: dict[str, Any] = {"name": version.name, "version": version.version, "digest": digest, "created": version.created}
    value |= {"revision": found.revision if found else 0, "files": files}
    value["signature"] = _decoded(signature.to_json()) if signature else None
    lines = [(key, value[key]) for key in ("name", "version", "digest", "created", "revision") if value[key]]
    lines += [("file", f"{file['path']} ({file['size']} bytes)") for file in files]
    lines += [("input", f"{field.name}: {field.dtype}") for field in (signature.fields if signature else ())]
    _print(json, value, "\n".join(f"{key:<9} {_plain(shown)}" for key, shown in lines))


@app.command()
def pull(ref: Ref, folder: Annotated[Path, typer.Argument(metavar="DIR", help="New or empty.")], json: Json = False) -> None:
    """Write a version's files into a folder, every byte checked."""
    from model_registry import package

    store, target = _open(ref)
    digest = store.resolve(target.tag).digest if target.tag else str(_wanted(target).digest)
    pulled = package.pull(store, digest, folder)
    value = {"name": pulled.name, "version": pulled.version, "digest": digest, "folder": str(folder)}
    _print(json, value, f"{pulled.name}:{pulled.version}@{digest} is in {folder}")


@app.command()
def promote(
    repo: Repo,
    to: Annotated[str, typer.Option("--to", metavar="VERSION", help="An older one is a rollback.", show_default=False)],
    channel: Channel = "prod",
    reason: Annotated[str, typer.Option(help="Stands in the history.")] = "",
    json: Json = False,
) -> None:
    """Point a channel at a version. Every move has a revision, one higher than the last."""
    from datetime import UTC, datetime

    from model_registry import channel as channels

    store, _ = _open(repo)
    move = channels.promote(store, channel, to, actor=_actor(), reason=reason, now=datetime.now(UTC))
    _print(json, _move(move), f"{channel}: {move.from_version or 'nothing'} -> {move.to_version} (revision {move.revision})")


@app.command()
def history(repo: Repo, channel: Channel = "prod", json: Json = False) -> None:
    """Show every move of a channel, the newest last."""
    from model_registry import channel as channels
    from model_registry.errors import NotFound

    store, _ = _open(repo)
    moves = channels.history(store, channel)
    if not moves:
        raise NotFound(f"{store.repository} has no channel {channel!r}", f"model-registry promote {repo} --to VERSION makes it")
    columns = ["revision", "at", "from", "to", "actor", "reason"]
    rows = [[m.revision, f"{m.at:%Y-%m-%d %H:%M:%S}Z", m.from_version or "-", m.to_version, m.actor, m.reason] for m in moves]
    _print(json, {"channel": channel, "moves": [_move(move) for move in moves]}, columns, rows)


def main() -> None:
    """The console entry point."""
    app(prog_name="model-registry")


def _open(text: str, *, tag: bool = False) -> "tuple[Store, Reference]":
    """The store of a reference; `tag` says that only a tag will do. Touches nothing yet."""
    from model_registry import reference
    from model_registry.errors import BadReference
    from model_registry.stores import open_store

    parsed = reference.parse(text)
    if tag and not parsed.tag:
        raise BadReference(f"{text}: which version?", f"write {parsed.bare()}:VERSION")
    return open_store(parsed), parsed


def _wanted(reference: "Reference") -> "Reference":
    """The reference, if it names one version."""
    from model_registry.errors import BadReference

    if not reference.tag and not reference.digest:
        raise BadReference(f"{reference}: which version?", f"write {reference}:TAG; model-registry list {reference} shows them")
    return reference


def _created() -> Any:
    """The time in SOURCE_DATE_EPOCH (reproducible-builds.org), if that is set."""
    import os
    from datetime import UTC, datetime

    from model_registry.errors import BadReference

    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    try:
        return datetime.fromtimestamp(int(text), UTC) if text else None
    except (ValueError, OverflowError, OSError):
        raise BadReference(f"SOURCE_DATE_EPOCH is {text!r}", "it must be seconds since 1970, or unset") from None


def _actor() -> str:
    """Who moves a channel: user@host."""
    import getpass
    import os
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # containers run as users that have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _move(move: "Move") -> dict[str, Any]:
    from dataclasses import asdict

    keys = {"from_digest": "from", "to_digest": "to"}
    return {keys.get(key, key): value for key, value in asdict(move).items()}


def _decoded(text: str) -> Any:
    import msgspec

    return msgspec.json.decode(text)


def _short(digest: str) -> str:
    return digest[: len("sha256:") + 12]


def _plain(text: object) -> str:
    """Text out of a registry without what a terminal would act on."""
    return "".join(character if character.isprintable() else "?" for character in str(text))


def _print(as_json: bool, value: object, shown: str | list[str], rows: list[list[Any]] | None = None) -> None:
    """Data on stdout: as JSON, or for people as a line or as a table with the columns `shown`."""
    if as_json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))
    elif rows is None:
        typer.echo(shown)
    else:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*shown, box=None, pad_edge=False)
        for row in rows:
            table.add_row(*[Text(_plain(cell), overflow="fold") for cell in row])
        Console().print(table)
