"""Which version is served: a snapshot of what is aspired, serving and known maps to one next action. Pure, and idempotent:
asked again before anything changed it gives the same answer.

Availability before everything: what is served stays until the aspired version is ready, and a refused version changes
nothing. The version served before stays in memory, so that going back needs no load.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

KEPT_IDLE = 1  # versions kept in memory beside the one that is served


@dataclass(frozen=True, slots=True)
class Load:
    """Fetch, check, load and warm this version."""

    digest: str


@dataclass(frozen=True, slots=True)
class Flip:
    """Serve the aspired version, which is ready, from the next batch on."""


@dataclass(frozen=True, slots=True)
class Unload:
    """Free this version."""

    digest: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is to be done until something changes."""


Named = tuple[str, int]
"""A version's digest, and the channel's revision that names it."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`aspired` and `serving` are None at first. `ready` are versions in memory in the order they were last served or made,
    oldest first; `refused` those that cannot be served."""

    aspired: Named | None
    serving: Named | None
    ready: Sequence[str]
    refused: Collection[str]


def next_action(now: Snapshot) -> Load | Flip | Unload | Wait:
    """The one next step towards the aspired version."""
    if now.aspired is None:
        return Wait()
    digest, _ = now.aspired
    if now.aspired != now.serving and digest not in now.refused:
        return Flip() if digest in now.ready else Load(digest)
    idle = [one for one in now.ready if one != digest and (now.serving is None or one != now.serving[0])]
    return Unload(idle[0]) if len(idle) > KEPT_IDLE else Wait()
