"""Where model versions are kept: one protocol, one module a kind of store."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from model_registry.oci.manifest import Descriptor

Progress = Callable[[Descriptor, int], None]
"""Called with some content and how many of its bytes have been sent or received so far, from any thread, often."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Options of remote registries; a folder needs none of them.

    `plain_http` talks HTTP without TLS: True to any loopback host, else to the hosts (`host:port`) that it names. `ca_file`
    holds PEM certificates that are trusted beside those of the system (or of SSL_CERT_FILE). `timeout_seconds` is how long
    the registry may be silent, or send next to nothing. `mount_from` are repositories of the same registry (`team/base`) that
    may already hold what is pushed.
    """

    plain_http: bool | Sequence[str] = False
    ca_file: Path | None = None
    timeout_seconds: float = 30.0
    progress: Progress | None = None
    mount_from: tuple[str, ...] = ()


DEFAULTS = StoreOptions()


class Store(Protocol):
    """One repository: content under digests, and tags that name manifests.

    Every method raises Unreachable where the store does not answer, and Corrupt where stored bytes do not have their digest.
    Content is checked before it is handed out; `blob` checks while it streams. Content never changes, so that pushing it
    twice is no error. A tag is moved only to a manifest that is stored.
    """

    @property
    def repository(self) -> str:
        """The repository as a reference names it, for messages."""

    def validator(self, tag: str) -> str:
        """An opaque value that is another one whenever the tag names another manifest than when it was asked last.

        Cheap enough to ask every second: nothing is downloaded. May raise NotFound where there is no such tag.
        """

    def tags(self) -> list[str]:
        """All tags, sorted."""

    def resolve(self, tag: str) -> Descriptor:
        """The manifest that a tag names now. Raises NotFound."""

    def manifest(self, digest: str) -> bytes:
        """A manifest's bytes, at most `manifest.MAX_BYTES`, digest checked. Raises NotFound."""

    def has_blob(self, digest: str) -> bool:
        """Whether a blob (or manifest) is stored. Says nothing about its content."""

    def blob(self, content: Descriptor) -> Iterator[bytes]:
        """A blob in chunks, known to be good only after the last one. Raises NotFound, and Corrupt at the latest at its end."""

    def push_blob(self, content: Descriptor, stream: BinaryIO) -> None:
        """Store what is left in a stream under its digest. Raises Corrupt, and stores nothing, where it is not that content."""

    def push_manifest(self, data: bytes) -> Descriptor:
        """Store a manifest or an index, without a tag. Raises Corrupt for other bytes, NotFound where it names what is not."""

    def push_referrer(self, data: bytes) -> tuple[Descriptor, bool]:
        """Store a manifest that has a subject, as `push_manifest` does; whether the store then lists it with its subject.

        False where the store has no referrers API, or does not confirm it: the caller must keep the list under the tag.
        """

    def settle(self) -> Iterator[None]:
        """Yield at once, then after each of the pauses in which a store may come to show what was written a moment ago.

        A store whose writes are visible at once yields once.
        """

    def move_tags(self, to: Mapping[str, Descriptor], *, expect: Mapping[str, str | None]) -> None:
        """Point tags at manifests, all in one step, if every tag in `expect` still has that digest (None: is not there).

        Raises Conflict, and moves nothing, where one has not; Refused where the store does not let a tag move; Unreachable
        where it took the write and still shows what was there before. A store without such a step (HTTP registries) moves them
        one by one in the order of `to`, the last one last: what readers start from.
        """

    def delete(self, manifests: Iterable[str], *, expect: Mapping[str, str], grace_seconds: float) -> int | None:
        """Delete manifests in this order, and every tag that names one, if the tags and their digests are those in `expect`.

        Content that no manifest needs any more goes with them, but for what was written in the last `grace_seconds`: it may
        belong to a push under way. Returns the bytes freed; None where the store frees them by itself, later. Raises Conflict
        where a tag has moved, and deletes no more (a store with locks: nothing at all); Refused where the store never deletes.
        """

    def referrers(self, digest: str) -> list[Descriptor] | None:
        """The manifests whose subject has this digest, as the store's referrers API lists them; None where it has no such API,
        whatever it answers then.

        The list is unchecked. Only `model_registry.signing.referrers` calls this.
        """
