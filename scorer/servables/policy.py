"""Which versions are served: a snapshot of what is aspired, serving and known maps to one next action. Pure, and idempotent:
asked again before anything changed it gives the same answer.

Availability before everything: what is served stays until every aspired version is ready, and a refused version changes
nothing. Where nothing is served yet, a champion that is ready answers for a canary that is refused. The version served before
stays in memory, so that going back needs no load.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from model_registry.channels.roles import CHAMPION

KEPT_IDLE = 1  # versions kept in memory beside those that are served


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
    """Serve the aspired versions that are ready, from the next batch on: all, or at a start at least the champion."""


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
    """`aspired` and `serving` name a version's digest for each role; both are empty at first. `known` holds versions in the
    order they were last served or made, oldest first. `revision`s are the channel's."""

    aspired: Mapping[str, str]
    aspired_revision: int
    serving: Mapping[str, str]
    serving_revision: int
    known: Mapping[str, State]


def is_refused(now: Snapshot) -> bool:
    """Whether the aspired versions cannot be served, because one of them is refused, or because there are none."""
    if not now.aspired:
        return True
    refused = any(now.known.get(digest) is State.REFUSED for digest in now.aspired.values())
    return refused and isinstance(next_action(now), Wait | Unload)


def next_action(now: Snapshot) -> Action:
    """The one next step towards the aspired versions."""
    if not now.aspired:
        return Wait()
    aspired, serving = now.aspired.values(), now.serving.values()
    if now.aspired != now.serving or now.aspired_revision != now.serving_revision:
        for digest in aspired:
            if digest not in now.known:
                return Load(digest)
        unready = [role for role, digest in now.aspired.items() if now.known[digest] is not State.READY]
        if not unready or (not now.serving and CHAMPION not in unready):
            return Flip()
    idle = [d for d, state in now.known.items() if state is State.READY and d not in serving and d not in aspired]
    return Unload(idle[0]) if len(idle) > KEPT_IDLE else Wait()
