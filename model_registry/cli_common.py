"""Code that all commands use: common options, opening of repositories, and printing of results.

Results go to stdout, messages and progress to stderr. Imports that take time happen when a function is called, so that `--help`
is quick.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from model_registry.errors import BadReference
from model_registry.oci import digests, reference, tags
from model_registry.oci.reference import ModelReference
from model_registry.untrusted_input.terminal_text import printable, printable_json

if TYPE_CHECKING:
    from model_registry.channels.history import ChannelMove
    from model_registry.channels.move_request import MoveRequest
    from model_registry.oci.manifest import Descriptor
    from model_registry.signing.keys import PrivateKey
    from model_registry.signing.signatures import TrustedKey
    from model_registry.stores.base import Progress, Store

TIMEOUT_SECONDS = 30.0
UNNAMED = "?"  # stands for an unknown version: it is no valid tag
MIN_BAR_BYTES = 1 << 20  # smaller content gets no progress bar: its transfer ends before a person could read the bar

Ref = Annotated[
    str,
    typer.Argument(
        metavar="REF", help="The version: HOST/PATH:TAG, HOST/PATH@sha256:..., or oci:FOLDER:TAG.", show_default=False
    ),
]
Repo = Annotated[
    str, typer.Argument(metavar="REPO", help="The repository of one model: HOST/PATH or oci:FOLDER.", show_default=False)
]
Channel = Annotated[str, typer.Option(help="The channel, for instance prod, or prod.eu-west for one region.")]
Reason = Annotated[str, typer.Option(help="The reason, recorded in the channel's history.")]
To = Annotated[str, typer.Option("--to", metavar="VERSION", help="The version to serve.", show_default=False)]
Canary = Annotated[
    str | None,
    typer.Option(metavar="SHARE", help="Serve the version as a canary to this share of the record keys, such as 5%."),
]
Shadow = Annotated[
    str | None,
    typer.Option(
        metavar="VERSION", help="Add this version as a shadow, which `scorer run --shadow` scores.", show_default=False
    ),
]
ExpectDigest = Annotated[str | None, typer.Option(metavar="DIGEST", help="Fail unless the version has this digest.")]
ExpectRevision = Annotated[int | None, typer.Option(metavar="N", help="Fail unless the channel is at this revision.", min=0)]
ToRevision = Annotated[
    int | None,
    typer.Option(metavar="N", help="The revision to return to. Default: the revision of the version served before.", min=1),
]
MoveKey = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="Sign the move with this private key.", show_default=False)
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The file with the key's password. Default: the password in the variable MODEL_REGISTRY_KEY_PASSWORD.",
        show_default=False,
    ),
]
Keys = Annotated[
    list[Path] | None, typer.Option("--key", metavar="FILE", help="A trusted public key; repeatable.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
PlainHosts = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST:PORT", help="Use HTTP without TLS for this host; repeatable.", show_default=False),
]
CaFile = Annotated[
    Path | None, typer.Option(help="Certificates (PEM) to trust in addition to the system's.", show_default=False)
]


def _show_version(requested: bool) -> None:
    from importlib.metadata import version

    if requested:
        print(version("scorestream"))
        raise typer.Exit


ShowVersion = Annotated[
    bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
]


def connection(
    ctx: typer.Context,
    plain_http: Annotated[bool, typer.Option("--plain-http", help="Use HTTP without TLS; loopback hosts only.")] = False,
    plain_http_host: PlainHosts = None,
    ca_file: CaFile = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for data from the registry.", min=0.1)] = TIMEOUT_SECONDS,
    _: ShowVersion = False,
) -> None:
    """Store model versions in OCI registries, and move channels (tags such as `prod`) to the version to serve."""
    from model_registry.stores.base import StoreOptions

    ctx.obj = StoreOptions(plain_http_host or plain_http, ca_file, timeout)


def open_repository(
    ctx: typer.Context, text: str, *, tag: bool = False, progress: "Progress | None" = None, mount_from: Sequence[str] = ()
) -> "tuple[Store, ModelReference]":
    """Parse a reference and open its store without sending a request.

    Args:
        ctx: The context in which `connection` stored the options of the connection.
        text: The reference.
        tag: Whether the reference must have a tag.
        progress: Called with the bytes transferred so far.
        mount_from: Other repositories of the same registry; their content is mounted instead of uploaded again.

    Raises:
        BadReference: A reference is malformed, the required tag is missing, or `mount_from` names another registry.
        Misconfigured: The credentials or certificates cannot be read.
    """
    from model_registry.stores.open import open_store

    parsed = reference.parse(text)
    if tag and not parsed.tag:
        raise BadReference(f"the reference {text} names no version", f"write {parsed.bare()}:VERSION")
    mounts = tuple(_repository_path(other, parsed) for other in mount_from)
    return open_store(parsed, options=replace(ctx.obj, progress=progress, mount_from=mounts)), parsed


def _repository_path(text: str, target: ModelReference) -> str:
    host, _, path = reference.parse(text).bare().repository.partition("/")
    if target.kind != "remote" or host != target.repository.partition("/")[0]:
        raise BadReference(f"{text} is not in the registry of {target.bare()}", "name a repository of the same registry")
    return path


def champion_of(store: "Store", target: ModelReference) -> str:
    """Return the manifest digest of the version that a reference names.

    If the reference names a channel, the version is the channel's champion, the version that answers events.

    Raises:
        BadReference: The reference has neither a tag nor a digest.
        NotFound: The store has no such version.
    """
    from model_registry.channels import roles

    if not target.tag and not target.digest:
        raise BadReference(
            f"the reference {target} names no version", f"write {target}:TAG; model-registry list {target} lists the tags"
        )
    digest = store.resolve(target.tag).digest if target.tag else str(target.digest)
    parts = roles.parse(store.manifest(digest))
    return parts[0].digest if parts else digest


def names_of(store: "Store", target: ModelReference, digest: str) -> list[str]:
    """Return the names of a version in the form MODEL:VERSION. There are one or two names.

    For a version's tag, VERSION is the tag. For a channel, VERSION is the version of the champion. For a digest, VERSION is the
    version that the manifest states. If the manifest states another version than VERSION, a second name has that version.

    Raises:
        BadReference: The reference is a digest, and its manifest does not state the version.
    """
    from model_registry.channels import channel
    from model_registry.stores import resolve_index

    served = target.tag or ""
    if served and served not in tags.versions(store.tags()):
        served = channel.resolve(store, served).version
    stated = resolve_index.describe_version(store, digest, version=served or UNNAMED).version
    if stated == UNNAMED:
        raise BadReference(f"the manifest of {target} does not state its version", "name it by its version tag")
    return [f"{target.name}:{version}" for version in dict.fromkeys((served or stated, stated))]


def canary_share(canary: str | None, shadow: str | None) -> int | None:
    """Return the canary's share in percent; None if there is no canary.

    Raises:
        BadReference: The share is no whole percent from 1 to 99, or there are both a canary and a shadow.
    """
    from model_registry.channels import roles

    if canary is not None and shadow is not None:
        hint = "leave --shadow out: `scorer run --shadow` scores the keys of the canary with the champion"
        raise BadReference("--canary and --shadow name two candidates, but a channel has only one", hint)
    return None if canary is None else roles.parse_percent(canary)


def move_request(
    reason: str,
    key: Path | None,
    password_file: Path | None,
    expect_digest: str | None = None,
    expect_revision: int | None = None,
) -> "MoveRequest":
    """Return a request to move a channel, by the current user at the current time. Raises BadFile for an unreadable key."""
    from model_registry.channels.move_request import MoveRequest, current_actor

    return MoveRequest(
        actor=current_actor(),
        reason=reason,
        time=datetime.now(UTC),
        expected_digest=expect_digest,
        expected_revision=expect_revision,
        key=private_key(key, password_file),
    )


def private_key(path: Path | None, password_file: Path | None) -> "PrivateKey | None":
    """Read the private key that signs a move; return None if `path` is None.

    Raises:
        BadFile: The key or its password cannot be read.
        BadReference: There is a password file without a key.
    """
    from model_registry.signing import keys

    if path is None:
        if password_file is not None:
            raise BadReference("--password-file requires --key", "add the key to sign with: --key FILE")
        return None
    return keys.read_private(path, keys.read_password(password_file))


def trusted_keys(paths: list[Path] | None) -> "list[TrustedKey]":
    """Read public keys; the name of each key is the path of its file. Raises BadFile."""
    from model_registry.signing import keys
    from model_registry.signing.signatures import TrustedKey

    return [TrustedKey(str(path), keys.read_public(path)) for path in paths or []]


def print_result(as_json: bool, value: object, text: str) -> None:
    """Print a result on stdout: the value as JSON, or the text."""
    if as_json:
        import msgspec

        typer.echo(printable_json(msgspec.json.format(msgspec.json.encode(value), indent=2)))
    else:
        typer.echo(printable(text, lines=True))


def print_result_line(as_json: bool, value: object, text: str) -> None:
    """Print one of many results as one line on stdout: the value as JSON, or the text."""
    import msgspec

    typer.echo(printable_json(msgspec.json.encode(value)) if as_json else printable(text))


def print_message(line: str) -> None:
    """Print a line for the person at the terminal, on stderr."""
    typer.echo(printable(line), err=True)


def format_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return rows as a table in plain text, as wide as the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*[Text(printable(cell), overflow="fold") for cell in row])
    console = Console()
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip("\n")


def move_document(move: "ChannelMove") -> dict[str, Any]:
    """Return a move as a JSON object, as the commands print it with --json."""
    keys = {"from_digest": "from", "to_digest": "to"}
    return {keys.get(key, key): value for key, value in asdict(move).items()}


def format_move(move: "ChannelMove") -> str:
    """Return a move as one line of text."""
    from model_registry.channels import roles

    parts = f": {roles.format_roles(move.roles)}" if move.roles else ""
    restored = f", back to revision {move.restores}" if move.restores else ""
    return printable(
        f"{move.channel}: {move.from_version or 'nothing'} -> {move.to_version} (revision {move.revision}{restored}){parts}"
    )


@contextmanager
def progress_bars() -> "Iterator[Progress | None]":
    """Yield a callback that shows a progress bar on stderr for each blob of at least MIN_BAR_BYTES.

    Yields None, without progress bars, if stderr is no terminal.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def update(content: "Descriptor", done: int) -> None:
            if content.size < MIN_BAR_BYTES:
                return
            if content.digest not in tasks:
                tasks[content.digest] = progress.add_task(digests.short(content.digest), total=content.size)
            progress.update(tasks[content.digest], completed=done)

        yield update


@contextmanager
def working_bar(description: str) -> Iterator[None]:
    """Show on stderr that work is in progress, with its time so far. Nothing is shown if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(description, total=None)
        yield
