"""The version policy: a snapshot of aspired, serving and known versions determines the next action. Pure and idempotent.

Availability first: the served versions stay until every aspired version is known to be good or refused, and a refused champion
changes nothing. A state of the channel is good if its champion is good. A refused candidate is left out, and the champion
answers its share under the revision of that state. The decision does not depend on a scorer's past: a running scorer, a
starting one and one that skipped polls reach the same revision. The previous version stays in memory, so that a rollback needs
no load.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from model_registry.channels.roles import CHAMPION

KEPT_IDLE = 1  # idle versions that stay in memory, besides the served ones


class VersionState(Enum):
    """The state of a version, by digest."""

    READY = "ready"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class LoadVersion:
    """Fetch, check, load and warm up this version."""

    digest: str


@dataclass(frozen=True, slots=True)
class Flip:
    """Serve the aspired versions that are not refused, including the champion, from the next batch on."""


@dataclass(frozen=True, slots=True)
class UnloadVersion:
    """Free this version."""

    digest: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until something changes."""


Action = LoadVersion | Flip | UnloadVersion | Wait


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The versions on which the policy decides.

    Attributes:
        aspired: the digest to serve in each role; empty before the channel is resolved.
        aspired_revision: the channel's revision of the aspired versions.
        serving: the digest that is served in each role; empty before the first version is served.
        serving_revision: the channel's revision of the served versions.
        states: the state of each known version by digest, in the order in which they were last served or loaded, oldest first.
    """

    aspired: Mapping[str, str]
    aspired_revision: int
    serving: Mapping[str, str]
    serving_revision: int
    states: Mapping[str, VersionState]


def is_refused(now: Snapshot) -> bool:
    """Return whether the aspired state cannot be served: its champion is refused, or it is empty."""
    return not now.aspired or now.states.get(now.aspired[CHAMPION]) is VersionState.REFUSED


def next_action(now: Snapshot) -> Action:
    """Return the next step towards the aspired versions."""
    if is_refused(now):
        return _unload(now)
    acceptable = {role: digest for role, digest in now.aspired.items() if now.states.get(digest) is not VersionState.REFUSED}
    if acceptable != now.serving or now.aspired_revision != now.serving_revision:
        for digest in (acceptable[CHAMPION], *acceptable.values()):
            if digest not in now.states:
                return LoadVersion(digest)
        return Flip()
    return _unload(now)


def _unload(now: Snapshot) -> UnloadVersion | Wait:
    """Unload the version that has been idle longest, if too many are idle."""
    needed = {*now.serving.values(), *now.aspired.values()}
    idle = [digest for digest, state in now.states.items() if state is VersionState.READY and digest not in needed]
    return UnloadVersion(idle[0]) if now.aspired and len(idle) > KEPT_IDLE else Wait()
