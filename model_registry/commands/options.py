"""What several verbs have in common: their options, and how they open a repository.

The options of the connection are said once, before the verb."""

import getpass
import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from model_registry.errors import BadReference
from model_registry.oci import reference, tags
from model_registry.oci.reference import ModelReference

if TYPE_CHECKING:
    from model_registry.signing.keys import PrivateKey
    from model_registry.signing.signatures import TrustedKey
    from model_registry.stores.base import Progress, Store

TIMEOUT_SECONDS = 30.0
NAMELESS = "?"  # no tag, and so no version, is called so

Ref = Annotated[
    str, typer.Argument(metavar="REF", help="HOST/PATH:TAG, HOST/PATH@sha256:..., or oci:FOLDER:TAG.", show_default=False)
]
Repo = Annotated[str, typer.Argument(metavar="REPO", help="HOST/PATH or oci:FOLDER, one a model.", show_default=False)]
Channel = Annotated[str, typer.Option(help="The tag that moves, for instance prod, or prod.eu-west for one region.")]
Reason = Annotated[str, typer.Option(help="Stands in the history.")]
MoveKey = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="Sign the move with this private key.", show_default=False)
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Holds the key's password; or set MODEL_REGISTRY_KEY_PASSWORD.", show_default=False),
]
Keys = Annotated[
    list[Path] | None, typer.Option("--key", metavar="FILE", help="A trusted public key; repeatable.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
PlainHosts = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST:PORT", help="HTTP without TLS to this one; repeatable.", show_default=False),
]
CaFile = Annotated[Path | None, typer.Option(help="Certificates (PEM) to trust beside the system's.", show_default=False)]


def _show_version(asked: bool) -> None:
    from importlib.metadata import version

    if asked:
        print(version("scorestream"))
        raise typer.Exit


ShowVersion = Annotated[
    bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
]


def connection(
    ctx: typer.Context,
    plain_http: Annotated[bool, typer.Option("--plain-http", help="HTTP without TLS; loopback hosts only.")] = False,
    plain_http_host: PlainHosts = None,
    ca_file: CaFile = None,
    timeout: Annotated[float, typer.Option(help="Seconds that the registry may be silent.", min=0.1)] = TIMEOUT_SECONDS,
    _: ShowVersion = False,
) -> None:
    """Store model versions in OCI registries, and move the channels that serve them."""
    from model_registry.stores.base import StoreOptions

    ctx.obj = StoreOptions(plain_http_host or plain_http, ca_file, timeout)


def open_repository(
    ctx: typer.Context, text: str, *, tag: bool = False, progress: "Progress | None" = None, mount_from: Sequence[str] = ()
) -> "tuple[Store, ModelReference]":
    """The store of a reference; `tag` says that only a tag will do. Touches nothing yet. Raises BadReference, Misconfigured."""
    from model_registry.stores.open import open_store

    parsed = reference.parse(text)
    if tag and not parsed.tag:
        raise BadReference(f"{text}: which version?", f"write {parsed.bare()}:VERSION")
    mounts = tuple(_neighbour(other, parsed) for other in mount_from)
    return open_store(parsed, options=replace(ctx.obj, progress=progress, mount_from=mounts)), parsed


def _neighbour(text: str, target: ModelReference) -> str:
    """The path of another repository in the registry of `target`. Raises BadReference."""
    host, _, path = reference.parse(text).bare().repository.partition("/")
    if target.kind != "remote" or host != target.repository.partition("/")[0]:
        raise BadReference(f"{text} is not in the registry of {target.bare()}", "content is mounted within one registry only")
    return path


def champion_of(store: "Store", target: ModelReference) -> str:
    """The version that a reference names; of a channel with several roles it is the champion. Raises BadReference, NotFound."""
    from model_registry.channels import roles

    if not target.tag and not target.digest:
        raise BadReference(f"{target}: which version?", f"write {target}:TAG; model-registry list {target} shows them")
    digest = store.resolve(target.tag).digest if target.tag else str(target.digest)
    parts = roles.parse(store.manifest(digest))
    return parts[0].digest if parts else digest


def names_of(store: "Store", target: ModelReference, digest: str) -> list[str]:
    """What the version that a reference names is called, as MODEL:VERSION: as it is served, then as its manifest says.

    Raises BadReference for a digest whose manifest does not say its version.
    """
    from model_registry.channels import channel
    from model_registry.stores import resolve_index

    called = target.tag or ""
    if called and called not in tags.versions(store.tags()):
        called = channel.resolve(store, called).version
    stated = resolve_index.describe_version(store, digest, version=called or NAMELESS).version
    if stated == NAMELESS:
        raise BadReference(f"{target}: its manifest does not say which version it is", "name it by its version tag")
    return [f"{target.name}:{version}" for version in dict.fromkeys((called or stated, stated))]


def private_key(path: Path | None, password_file: Path | None) -> "PrivateKey | None":
    """The key that signs a move; None where no key is named. Raises BadFile, BadReference."""
    from model_registry.signing import keys

    if path is None:
        if password_file is not None:
            raise BadReference("--password-file is for a key", "name the key: --key FILE")
        return None
    return keys.read_private(path, keys.read_password(password_file))


def trusted_keys(paths: list[Path] | None) -> "list[TrustedKey]":
    """Public keys, each under the name of its file. Raises BadFile."""
    from model_registry.signing import keys
    from model_registry.signing.signatures import TrustedKey

    return [TrustedKey(str(path), keys.read_public(path)) for path in paths or []]


def actor() -> str:
    """Who moves a channel: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # containers run as users that have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
