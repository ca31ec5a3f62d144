"""Which versions are served: a snapshot of what is aspired, serving and known maps to one next action. Pure, and idempotent:
asked again before anything changed it gives the same answer.

Availability before everything: the served versions stay until it is known of every aspired version whether it is good, and a
refused champion changes nothing. A state of the channel is good if its champion is good. A refused candidate is left out, and
the champion answers its share under the revision of that state. This depends on no scorer's past: a scorer that runs, one that
starts and one that skipped polls reach the same revision. The version served before stays in memory, so that going back needs
no load.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from model_registry.channels.roles import CHAMPION

KEPT_IDLE = 1  # versions kept in memory beside those that are served


class VersionState(Enum):
    """What is known of a version, by digest."""

    READY = "ready"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class LoadVersion:
    """Fetch, check, load and warm this version."""

    digest: str


@dataclass(frozen=True, slots=True)
class Flip:
    """Serve the aspired versions that are not refused, the champion among them, from the next batch on."""


@dataclass(frozen=True, slots=True)
class UnloadVersion:
    """Free this version."""

    digest: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is to be done until something changes."""


Action = LoadVersion | Flip | UnloadVersion | Wait


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`aspired` and `serving` name a version's digest for each role; both are empty at first. `known` holds versions in the
    order they were last served or made, oldest first. `revision`s are the channel's."""

    aspired: Mapping[str, str]
    aspired_revision: int
    serving: Mapping[str, str]
    serving_revision: int
    known: Mapping[str, VersionState]


def is_refused(now: Snapshot) -> bool:
    """Whether the aspired state cannot be served, because its champion is refused, or because there is no such state."""
    return not now.aspired or now.known.get(now.aspired[CHAMPION]) is VersionState.REFUSED


def next_action(now: Snapshot) -> Action:
    """The one next step towards the aspired versions."""
    if is_refused(now):
        return _unload(now)
    good = {role: digest for role, digest in now.aspired.items() if now.known.get(digest) is not VersionState.REFUSED}
    if good != now.serving or now.aspired_revision != now.serving_revision:
        for digest in (good[CHAMPION], *good.values()):
            if digest not in now.known:
                return LoadVersion(digest)
        return Flip()
    return _unload(now)


def _unload(now: Snapshot) -> UnloadVersion | Wait:
    """Free the version that was not served for the longest time, if too many are idle."""
    needed = {*now.serving.values(), *now.aspired.values()}
    idle = [digest for digest, state in now.known.items() if state is VersionState.READY and digest not in needed]
    return UnloadVersion(idle[0]) if now.aspired and len(idle) > KEPT_IDLE else Wait()
