"""Whether a version may be loaded: by a policy, or without one. Imports what checks signatures only where there is a policy."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from model_registry.stores import Store


@dataclass(frozen=True, slots=True)
class Verdict:
    """A version may be loaded. `key_id` is the key that vouches for it, None where none is asked for."""

    digest: str
    key_id: str | None


class Admission(Protocol):
    """Asked before a byte of a version is loaded."""

    def check(self, store: Store, digest: str, version: str, now: datetime) -> Verdict:
        """Say that a manifest may be loaded as this version. Raises Refused where it may not, and what the store raises."""
        ...


class Everything:
    """Without a policy every version may be loaded, and no registry is asked."""

    def check(self, store: Store, digest: str, version: str, now: datetime) -> Verdict:  # noqa: ARG002 - the protocol's
        """See `Admission`."""
        return Verdict(digest, None)


def admission(policy: Path | None, cache: Path) -> Admission:
    """What a policy file asks for; what proved a version is kept in the cache folder. Raises BadFile."""
    if policy is None:
        return Everything()
    from model_registry.trust.gate import Gate
    from model_registry.trust.policy import read

    return Gate(read(policy), cache / "proofs")
