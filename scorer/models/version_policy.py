"""The version policy decides the next action: load, serve or unload a version. Pure, idempotent.

The aspired versions are the versions to serve next. The served versions stay until every aspired version is ready or refused.
If the aspired champion is refused, the served versions stay. If only the candidate is refused, the champion answers the
candidate's share.
"""

# The decision does not depend on a scorer's past: a running scorer, a starting scorer and a scorer that skipped polls reach the
# same revision. The previous version stays in memory, so that a rollback needs no load.

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from model_registry.channels.roles import CHAMPION

KEPT_IDLE = 1  # maximum number of versions in memory that are neither served nor aspired


class VersionState(Enum):
    """The state of a version that is known to this scorer: loaded and ready, or refused."""

    READY = "ready"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class LoadVersion:
    """The action to fetch, check, load and warm up the version with this digest."""

    digest: str


@dataclass(frozen=True, slots=True)
class Flip:
    """The action to serve the aspired versions from the next batch on. A refused candidate is left out."""


@dataclass(frozen=True, slots=True)
class UnloadVersion:
    """The action to free the model of the version with this digest."""

    digest: str


@dataclass(frozen=True, slots=True)
class Wait:
    """The action to do nothing until the snapshot changes."""


Action = LoadVersion | Flip | UnloadVersion | Wait


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The versions of a scorer at one moment, from which the policy decides.

    Attributes:
        aspired: the digest of the version to serve in each role; empty before the channel is read.
        aspired_revision: the revision of the channel that names the versions in `aspired`.
        serving: the digest of the served version in each role; empty before the first version is served.
        serving_revision: the revision of the channel that names the versions in `serving`.
        states: the state of each loaded or refused version by digest. The loaded ones are in the order of their last use,
            oldest first.
    """

    aspired: Mapping[str, str]
    aspired_revision: int
    serving: Mapping[str, str]
    serving_revision: int
    states: Mapping[str, VersionState]


def is_refused(now: Snapshot) -> bool:
    """Return whether there is no version to serve, because the champion is refused or the channel names none."""
    return not now.aspired or now.states.get(now.aspired[CHAMPION]) is VersionState.REFUSED


def next_action(now: Snapshot) -> Action:
    """Return the next action on the way to serving the versions that the channel names."""
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
    """If too many loaded versions are unused, return the action to unload the least recently used one; otherwise Wait."""
    needed = {*now.serving.values(), *now.aspired.values()}
    idle = [digest for digest, state in now.states.items() if state is VersionState.READY and digest not in needed]
    return UnloadVersion(idle[0]) if now.aspired and len(idle) > KEPT_IDLE else Wait()
