"""The mark a scorer leaves in the metadata of every committed offset: who scored up to here, under which channel revision."""

from dataclasses import dataclass

import msgspec


class _Wire(msgspec.Struct):
    owner: str = ""
    revision: int = 0
    version: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """`owner` is `<name>.<replica>`, `revision` the channel's, `digest` the manifest digest of `version`."""

    owner: str = ""
    revision: int = 0
    version: str = ""
    digest: str = ""

    def encode(self) -> str:
        """As it stands in the offset metadata."""
        return msgspec.json.encode(_Wire(self.owner, self.revision, self.version, self.digest)).decode()

    @classmethod
    def decode(cls, metadata: str | None) -> "Mark":
        """Whatever stands there; metadata that somebody else wrote counts as no mark."""
        if not metadata:
            return cls()
        try:
            wire = msgspec.json.decode(metadata, type=_Wire)
        except msgspec.DecodeError:
            return cls()
        return cls(wire.owner, wire.revision, wire.version, wire.digest)
