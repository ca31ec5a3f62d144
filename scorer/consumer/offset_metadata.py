"""The metadata of every committed offset: the owner of the partition, and the version that scored up to the offset.

The JSON keys are a contract with scorers of other releases. The metadata is untrusted: any client may commit other text.
"""

import msgspec

from model_registry.untrusted_input.documents import Count, UnreadableDocument, decode

MAX_BYTES = 65_536  # a broker accepts 4,096 bytes of metadata by default; it may be configured otherwise


class OffsetMetadata(msgspec.Struct, frozen=True):
    """The mark of a committed offset: its owner, and the version that scored the events before it.

    Attributes:
        owner: the scorer (`<name>.<replica>`) that owns the partition, or owned it when it died; "" after an orderly release.
        revision: the revision of the channel that scored the events before the offset. It names the versions of all roles. 0 if
            the tag is not a channel.
        version: the version of the champion.
        digest: the digest of the champion's manifest.
        topic_id: the id of the topic that the offset belongs to; "" if unknown.
        `anew`: whether an earlier topic of the same name was scored and no event of this topic is answered yet.
        suspect: whether the owner reads the partition in the sandbox (`sandboxed_partitions.py`), as the next owner must.
    """

    owner: str = ""
    revision: Count = 0
    version: str = ""
    digest: str = ""
    topic_id: str = ""
    anew: bool = False
    suspect: bool = False

    @property
    def served(self) -> tuple[int, str]:
        """The version that scored the events before the offset: equal for equal versions in every role."""
        return self.revision, self.digest

    def encode(self) -> str:
        """Return the mark as the metadata of an offset."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, metadata: str | None) -> "OffsetMetadata":
        """Return the mark in the metadata; an empty mark if the metadata is unreadable or comes from another writer."""
        try:
            return cls.read(metadata)
        except UnreadableDocument:
            return cls()

    @classmethod
    def read(cls, metadata: str | None) -> "OffsetMetadata":
        """Return the mark in the metadata; an empty mark if there is none. Raises UnreadableDocument."""
        return decode(metadata, cls, max_bytes=MAX_BYTES) if metadata else cls()
