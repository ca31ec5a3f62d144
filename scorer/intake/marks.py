"""The mark in the metadata of every committed offset: who has the partition, and which version scored up to here."""

import msgspec


class Mark(msgspec.Struct, frozen=True):
    """What lies before the offset was scored under `revision` of the channel, which names the versions of all roles. `version`
    and `digest` (of its manifest) are the champion's. A tag that is no channel has revision 0.

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

    @property
    def served(self) -> tuple[int, str]:
        """What scored up to here: equal for equal versions in every role."""
        return self.revision, self.digest

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
