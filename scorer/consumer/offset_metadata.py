"""The metadata of every committed offset: the owner of the partition, and the version that scored up to it."""

import msgspec

from model_registry.untrusted_input.documents import Count, UnreadableDocument, decode

MAX_BYTES = 65_536  # Kafka takes 4,096 bytes of metadata unless the broker is configured otherwise


class OffsetMetadata(msgspec.Struct, frozen=True):
    """What lies before the offset was scored under `revision` of the channel, which names the versions of all roles. `version`
    and `digest` (of its manifest) are the champion's. A tag that is no channel has revision 0.

    `owner` (`<name>.<replica>`) owns the partition, or owned it when it died; "" after an orderly release. `topic_id` is the
    id of the topic that the offset belongs to; "" if unknown. `anew`: an earlier topic of the same name was scored and no
    event of this one is answered. `suspect`: the owner reads the partition in the sandbox (`sandboxed_partitions.py`), and the
    next owner must too.
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
        """The version that scored up to here: equal for equal versions in every role."""
        return self.revision, self.digest

    def encode(self) -> str:
        """Encode the mark as offset metadata."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, metadata: str | None) -> "OffsetMetadata":
        """Return the mark in the metadata; metadata that is unreadable or of another writer counts as no mark."""
        try:
            return cls.read(metadata)
        except UnreadableDocument:
            return cls()

    @classmethod
    def read(cls, metadata: str | None) -> "OffsetMetadata":
        """Return the mark in the metadata, an empty one if there is none. Raises Unreadable."""
        return decode(metadata, cls, max_bytes=MAX_BYTES) if metadata else cls()
