"""Which version is served: a snapshot of what is aspired, serving and known maps to one next action. Pure, and idempotent:
asked again before anything changed it gives the same answer.

Availability before everything: the serving version stays until the aspired one is ready, and a refused version changes
nothing. The version served before stays in memory, so that going back needs no load.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

KEPT_IDLE = 1  # versions kept in memory beside the serving one


class State(Enum):
    """What is known of a version, by digest."""

    READY = "ready"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Load:
    """Fetch, check, load and warm this version."""

    digest: str


@dataclass(frozen=True, slots=True)
class Flip:
    """Serve this ready version from the next batch on."""

    digest: str


@dataclass(frozen=True, slots=True)
class Unload:
    """Free this version."""

    digest: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is to be done until something changes."""


Action = Load | Flip | Unload | Wait


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`known` holds versions in the order they were last served or made, oldest first. `revision`s are the channel's."""

    aspired: str | None
    aspired_revision: int
    serving: str | None
    serving_revision: int
    known: Mapping[str, State]


def next_action(now: Snapshot) -> Action:
    """The one next step towards the aspired version."""
    if now.aspired is None:
        return Wait()
    if now.aspired == now.serving:
        if now.aspired_revision != now.serving_revision:
            return Flip(now.aspired)
    elif now.aspired not in now.known:
        return Load(now.aspired)
    elif now.known[now.aspired] is State.READY:
        return Flip(now.aspired)
    idle = [d for d, state in now.known.items() if state is State.READY and d not in (now.serving, now.aspired)]
    return Unload(idle[0]) if len(idle) > KEPT_IDLE else Wait()
