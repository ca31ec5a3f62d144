"""The protocol of a store, which holds one repository: content under digests, and tags that name manifests."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from model_registry.oci.manifest import Descriptor

Progress = Callable[[Descriptor, int], None]
"""A callback with a blob's descriptor and the number of bytes transferred so far, called often and from any thread."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Options of stores in remote registries. A store in a folder ignores them.

    Attributes:
        plain_http: Where to use HTTP without TLS: True for loopback hosts, False for no host, or a list of hosts (`host:port`).
        ca_file: PEM certificates to trust in addition to the system's (or those of SSL_CERT_FILE).
        timeout_seconds: The time within which the registry must send either at least `retry.PROGRESS_BYTES` or the rest of its
            response.
        progress: Called with the descriptor of a blob and the number of its bytes transferred so far.
        mount_from: Repositories of the same registry (`team/base`). Content that one of them holds is mounted from there
            instead of uploaded.
    """

    plain_http: bool | Sequence[str] = False
    ca_file: Path | None = None
    timeout_seconds: float = 30.0
    progress: Progress | None = None
    mount_from: tuple[str, ...] = ()


DEFAULTS = StoreOptions()


class Store(Protocol):
    """A store holds one repository: content under digests, and tags that name manifests.

    Every method raises Unreachable if the store does not answer, and Corrupt if stored bytes do not match their digest. Content
    is verified before it is returned; only `blob` verifies it while it streams. Pushing the same content twice is no error. A
    tag can only name a manifest that is already stored.
    """

    @property
    def repository(self) -> str:
        """The repository in the syntax of references, for messages."""

    def validator(self, tag: str) -> str:
        """Return an opaque value that changes whenever the tag names another manifest.

        The call downloads no content and is cheap enough to be repeated every second. It may raise NotFound if there is no
        such tag.
        """

    def tags(self) -> list[str]:
        """Return all tags, sorted."""

    def resolve(self, tag: str) -> Descriptor:
        """Return the descriptor of the manifest that a tag names now. Raises NotFound."""

    def manifest(self, digest: str) -> bytes:
        """Return the verified bytes of a manifest, at most `manifest.MAX_BYTES`. Raises NotFound."""

    def has_blob(self, digest: str) -> bool:
        """Return whether a blob or manifest is stored. Its content is not verified."""

    def blob(self, content: Descriptor) -> Iterator[bytes]:
        """Yield a blob in chunks. The blob is verified only when the iterator ends without an error.

        Raises:
            NotFound: There is no such blob.
            Corrupt: The content does not match its digest or size; raised after the last chunk at the latest.
        """

    def push_blob(self, content: Descriptor, stream: BinaryIO) -> None:
        """Store the unread rest of a stream as the blob `content`.

        Raises Corrupt, and stores nothing, if the bytes do not have the digest and size in `content`.
        """

    def mount_blob(self, content: Descriptor) -> bool:
        """Store a blob by mounting it from another repository of the same registry, without reading its content.

        Returns False if none of the repositories in `StoreOptions.mount_from` has the blob, or if the store does not support
        mounting.
        """

    def push_manifest(self, data: bytes) -> Descriptor:
        """Store a manifest or an index without a tag.

        Raises:
            Corrupt: The bytes are no manifest.
            NotFound: Content that the manifest names is missing.
        """

    def push_referrer(self, data: bytes) -> tuple[Descriptor, bool]:
        """Store a manifest with a subject as `push_manifest` does.

        Returns its descriptor, and whether the referrers API lists the manifest. If not, the caller must add it to the list
        under the fallback tag.
        """

    def visibility_attempts(self) -> Iterator[None]:
        """Pace the attempts of a caller that waits until the store shows a recent write.

        Yields once immediately, then once after each of a few pauses. A store that shows every write immediately yields only
        once.
        """

    def move_tags(self, to: Mapping[str, Descriptor], *, expect: Mapping[str, str | None]) -> None:
        """Point tags at manifests, if every tag in `expect` still names the expected digest (None: the tag does not exist).

        An HTTP registry moves the tags one by one in the order of `to`; a store in a folder moves all of them in one step.

        Raises:
            Conflict: A tag does not name the expected digest. A store in a folder then has moved no tag.
            Refused: The store does not allow a tag to move.
            Unreachable: The store accepted the write but still shows the old tag.
        """
        # The last tag in `to` must be the tag that readers resolve first.

    def delete(self, manifests: Iterable[str], *, expect: Mapping[str, str], grace_seconds: float) -> int | None:
        """Delete manifests in this order, and all tags that name them, if every tag in `expect` still names its digest.

        Content that no remaining manifest needs is deleted too. Such content is kept if it was stored within the last
        `grace_seconds`, because it may belong to a push in progress.

        Returns:
            The bytes freed; None if the store frees the space later by itself.

        Raises:
            Conflict: A tag was moved or created meanwhile. A store in a folder then has deleted nothing; an HTTP registry may
                have deleted the first manifests.
            Refused: The store does not support deletion.
        """

    def referrers(self, digest: str) -> list[Descriptor] | None:
        """Return the descriptors that the store's referrers API lists for the subject with this digest; None without that API.

        The list is not verified.
        """
