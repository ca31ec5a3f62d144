"""The metadata of every committed offset: the partition's owner, and the model version that scored up to the offset.

Scorers of other releases read the same JSON keys, so the keys must not change. The metadata is untrusted, because every client
may commit arbitrary text.
"""

import msgspec

from model_registry.untrusted_input.json_documents import Count, UnreadableDocument, decode

MAX_BYTES = 65_536  # a broker accepts 4,096 bytes of metadata by default; it may be configured otherwise


class OffsetMetadata(msgspec.Struct, frozen=True):
    """The metadata of a committed offset: its owner, and the model version that scored the events before it.

    Attributes:
        owner: the scorer (`<name>.<replica>`) that owns the partition, or that died while it owned the partition; "" after an
            orderly release.
        revision: the revision of the model channel whose champion and canary scored the events before the offset; 0 if
            `model.tag` is not a channel.
        version: the version of the champion.
        digest: the digest of the champion's manifest.
        topic_id: the id of the topic that the offset belongs to; "" if unknown.
        is_recreated: whether the topic was recreated and no event of the new topic is answered yet.
        suspect: whether the owner reads the partition in the sandbox (`sandboxed_partitions.py`). The next owner must do this
            too.
        member: the owner's member id in the consumer group; "" if unknown. A scorer that dies and joins again gets another id.
        history: the id of the channel history that contains `revision`; "" if unknown. A channel that is created again
            gets another id and counts its revisions from 1.
    """

    owner: str = ""
    revision: Count = 0
    version: str = ""
    digest: str = ""
    topic_id: str = ""
    is_recreated: bool = False
    suspect: bool = False
    member: str = ""
    history: str = ""

    @property
    def served(self) -> tuple[int, str]:
        """The revision and the champion's digest, which identify the versions that scored the events."""
        return self.revision, self.digest

    def is_of_other_history(self, history: str) -> bool:
        """Return whether `revision` belongs to another channel history than the one with the id `history`.

        The result is False if one of the two ids is unknown.
        """
        # Revisions of different histories cannot be compared.
        return bool(self.history and history and self.history != history)

    def encode(self) -> str:
        """Return the metadata as JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, metadata: str | None) -> "OffsetMetadata":
        """Parse the metadata of an offset; return empty metadata if it is missing or unreadable."""
        try:
            return cls.read(metadata)
        except UnreadableDocument:
            return cls()

    @classmethod
    def read(cls, metadata: str | None) -> "OffsetMetadata":
        """Parse the metadata of an offset; return empty metadata for None or "". Raises UnreadableDocument if invalid."""
        return decode(metadata, cls, max_bytes=MAX_BYTES) if metadata else cls()
