"""The protocol of stores: one repository with content under digests and tags that name manifests."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from model_registry.oci.manifest import Descriptor

Progress = Callable[[Descriptor, int], None]
"""Receives a blob and the number of its bytes transferred so far. Called often, from any thread."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Options of remote registries; a folder needs none of them.

    Attributes:
        plain_http: Whether to use HTTP without TLS: True for any loopback host, or the hosts (`host:port`) for which to use
            it.
        ca_file: PEM certificates to trust in addition to the system's (or those of SSL_CERT_FILE).
        timeout_seconds: The time in which the registry must send at least `retry.PROGRESS_BYTES` or a complete response.
        progress: Called with the bytes transferred so far.
        mount_from: Repositories of the same registry (`team/base`) that may already hold the pushed content.
    """

    plain_http: bool | Sequence[str] = False
    ca_file: Path | None = None
    timeout_seconds: float = 30.0
    progress: Progress | None = None
    mount_from: tuple[str, ...] = ()


DEFAULTS = StoreOptions()


class Store(Protocol):
    """One repository: content under digests, and tags that name manifests.

    Every method raises Unreachable if the store does not answer, and Corrupt if stored bytes do not match their digest.
    Content is verified before it is returned; `blob` verifies while it streams. Content never changes, so pushing it twice
    is no error. A tag moves only to a stored manifest.
    """

    @property
    def repository(self) -> str:
        """The repository as in a reference, for messages."""

    def validator(self, tag: str) -> str:
        """Return an opaque value that changes whenever the tag names another manifest.

        The call downloads nothing and is cheap enough for every second. May raise NotFound if there is no such tag.
        """

    def tags(self) -> list[str]:
        """Return all tags, sorted."""

    def resolve(self, tag: str) -> Descriptor:
        """Return the manifest that a tag names now. Raises NotFound."""

    def manifest(self, digest: str) -> bytes:
        """Return a manifest's bytes, at most `manifest.MAX_BYTES`, with its digest verified. Raises NotFound."""

    def has_blob(self, digest: str) -> bool:
        """Return whether a blob or manifest is stored. Its content is not verified."""

    def blob(self, content: Descriptor) -> Iterator[bytes]:
        """Yield a blob in chunks; it is verified only after the last one.

        Raises:
            NotFound: There is no such blob.
            Corrupt: The content does not match; raised at its end at the latest.
        """

    def push_blob(self, content: Descriptor, stream: BinaryIO) -> None:
        """Store the rest of a stream under its digest. Raises Corrupt, and stores nothing, if the content does not match."""

    def push_manifest(self, data: bytes) -> Descriptor:
        """Store a manifest or an index without a tag.

        Raises:
            Corrupt: The bytes are no manifest.
            NotFound: Content that the manifest names is missing.
        """

    def push_referrer(self, data: bytes) -> tuple[Descriptor, bool]:
        """Store a manifest with a subject as `push_manifest` does, and return whether the store lists it with its subject.

        The second value is False if the store has no referrers API or does not confirm the listing: the caller must then
        keep the list under the fallback tag.
        """

    def settle(self) -> Iterator[None]:
        """Yield at once, then after each pause in which the store may come to show a recent write.

        A store that shows writes at once yields once.
        """

    def move_tags(self, to: Mapping[str, Descriptor], *, expect: Mapping[str, str | None]) -> None:
        """Point tags at manifests in one step, if every tag in `expect` still has that digest (None: does not exist).

        A store without such a step (HTTP registries) moves the tags one by one in the order of `to`; the last one is the
        tag from which readers start.

        Raises:
            Conflict: A tag has another digest than expected; nothing was moved.
            Refused: The store does not allow a tag to move.
            Unreachable: The store accepted the write but still shows the old tag.
        """

    def delete(self, manifests: Iterable[str], *, expect: Mapping[str, str], grace_seconds: float) -> int | None:
        """Delete manifests in this order, and all tags that name them, if the tags are exactly those in `expect`.

        Content that no manifest needs is deleted too, except what was written in the last `grace_seconds`: it may belong to
        a push in progress.

        Returns:
            The bytes freed; None if the store frees them later by itself.

        Raises:
            Conflict: A tag has moved; no further manifest was deleted (with a store that locks: none at all).
            Refused: The store never deletes.
        """

    def referrers(self, digest: str) -> list[Descriptor] | None:
        """Return the manifests whose subject has this digest, as the store's referrers API lists them; None without that API.

        The list is not verified. Only `model_registry.signing.referrers` calls this.
        """
