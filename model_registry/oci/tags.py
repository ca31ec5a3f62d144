"""The kinds of tags in a repository: versions, channels, history entries, and lists of referrers.

A version's tag never moves. A channel is a tag that promotions and rollbacks move, and that has a history tag for each move,
such as `_h.prod.000001`. The tag `sha256-<hex>` names the list of the referrers (such as signatures) of a manifest.
"""

# distribution-spec "Referrers Tag Schema"; cosign 2 adds a suffix.

import re
from collections.abc import Iterable

from model_registry.errors import BadReference

DEFAULT_CHANNEL = "prod"
_CHANNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_HISTORY = re.compile(r"_h\.(?P<channel>.+)\.(?P<revision>\d{6,})")
_REFERRERS = re.compile(r"sha256-[0-9a-f]{64}(\..*)?")


def check_channel(name: str) -> str:
    """Return `name` unchanged if it is a valid name for a channel. Raises BadReference otherwise."""
    if not _CHANNEL.fullmatch(name):
        raise BadReference(
            f"{name!r} is not a valid name of a channel",
            "a channel is 1 to 64 letters, digits, '.', '_', '-', for instance prod",
        )
    return name


def check_version(tag: str) -> str:
    """Return `tag` unchanged if it is a valid tag for a version. Raises BadReference otherwise."""
    if not _VERSION.fullmatch(tag) or _REFERRERS.fullmatch(tag):
        raise BadReference(
            f"{tag!r} is not a valid name of a version",
            "a version is 1 to 128 letters, digits, '.', '_', '-', for instance 1.4.0",
        )
    return tag


def history_tag(channel: str, revision: int) -> str:
    """Return the tag of a channel's history entry with this revision."""
    return f"_h.{channel}.{revision:06d}"


def revisions(tags: Iterable[str], channel: str) -> list[int]:
    """Return the revision numbers of a channel's history tags, the newest (highest) first."""
    entries = (_HISTORY.fullmatch(tag) for tag in tags)
    return sorted((int(e["revision"]) for e in entries if e is not None and e["channel"] == channel), reverse=True)


def channels(tags: Iterable[str]) -> list[str]:
    """Return the names of the channels that have a history tag, sorted."""
    return sorted({entry["channel"] for tag in tags if (entry := _HISTORY.fullmatch(tag)) is not None})


def is_referrers(tag: str) -> bool:
    """Return whether a tag has the form of the fallback tag under which the referrers of a manifest are listed."""
    return _REFERRERS.fullmatch(tag) is not None


def versions(tags: Iterable[str]) -> list[str]:
    """Return the version tags, sorted: tags that are no channel, no history entry and no list of referrers."""
    every = list(tags)
    moving = set(channels(every))
    return sorted(t for t in every if t not in moving and not _HISTORY.fullmatch(t) and not _REFERRERS.fullmatch(t))
