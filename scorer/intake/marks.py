"""The mark in the metadata of every committed offset: who has the partition, and which version scored up to here."""

import msgspec


class Mark(msgspec.Struct, frozen=True):
    """`revision` is the channel's, `digest` the manifest digest of `version`: they tell of what lies before the offset.

    `owner` (`<name>.<replica>`) has the partition, or had it until it died; "" where it left in good order. `topic_id` is that
    of the topic whose offset this is; "" where nobody has said it. `anew`: an earlier topic of its name was scored, and nothing
    of this one is answered.
    """

    owner: str = ""
    revision: int = 0
    version: str = ""
    digest: str = ""
    topic_id: str = ""
    anew: bool = False

    def encode(self) -> str:
        """As it stands in the offset metadata."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, metadata: str | None) -> "Mark":
        """Whatever stands there; metadata that somebody else wrote counts as no mark."""
        if not metadata:
            return cls()
        try:
            return msgspec.json.decode(metadata, type=cls)
        except msgspec.DecodeError:
            return cls()
