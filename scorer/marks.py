"""The mark in the metadata of every committed offset: who has the partition, and which version scored up to here."""

from dataclasses import dataclass

import msgspec


class _Wire(msgspec.Struct):
    owner: str = ""
    revision: int = 0
    version: str = ""
    digest: str = ""
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """`revision` is the channel's, `digest` the manifest digest of `version`: they tell of what lies before the offset.

    `owner` (`<name>.<replica>`) has the partition, or had it until it died; "" where it left in good order. `attempts`: how
    often a process has died over what follows (attempts.py).
    """

    owner: str = ""
    revision: int = 0
    version: str = ""
    digest: str = ""
    attempts: int = 0

    def encode(self) -> str:
        """As it stands in the offset metadata."""
        return msgspec.json.encode(_Wire(self.owner, self.revision, self.version, self.digest, self.attempts)).decode()

    @classmethod
    def decode(cls, metadata: str | None) -> "Mark":
        """Whatever stands there; metadata that somebody else wrote counts as no mark."""
        if not metadata:
            return cls()
        try:
            wire = msgspec.json.decode(metadata, type=_Wire)
        except msgspec.DecodeError:
            return cls()
        return cls(wire.owner, wire.revision, wire.version, wire.digest, wire.attempts)
