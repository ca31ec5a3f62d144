"""Count which version had to answer each key, and which one did. This count shares no code with the product.

Its input is the list of moves of the channel and the cut-overs in the swap topic. It has its own xxh64.
Pure: records in, counts out.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.chaos.canary.plan import key
from tests.support.xxh64 import xxh64

BUCKETS = 10_000
FALLBACKS = {"crash", "refused"}
"""The reasons for which the champion may answer instead of the candidate: a process was killed with events in flight."""
SIGMAS = 4.0
FAULTS = (
    "wrong_cut_over",
    "wrong_key",
    "wrong_revision",
    "misassigned",
    "wrong_version",
    "wrong_score",
    "wrong_fallback",
    "moved_back",
    "wrong_share",
)


@dataclass(frozen=True)
class Revision:
    """A revision of the channel: the champion, and the percent of the keys that the candidate answers."""

    champion: str
    percent: int = 0


@dataclass
class Share:
    """The keys under one revision. `keys` and `canary` are (K,): the keys with events, and those of them in the canary arm."""

    keys: NDArray[np.bool_]
    canary: NDArray[np.bool_]
    events: int = 0
    candidate: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)

    def figures(self, percent: int) -> dict[str, Any]:
        """Return the figures. `sigmas` is the distance of the share of keys from the expected share."""
        keys, canary = int(self.keys.sum()), int(self.canary.sum())
        p = percent / 100
        deviation = math.sqrt(p * (1 - p) / keys) if keys else 0.0
        share = canary / keys if keys else math.nan
        return {
            "canary_percent": percent,
            "events": self.events,
            "events_of_candidate": self.candidate,
            "keys": keys,
            "keys_of_canary": canary,
            "share_percent": round(100 * share, 4),
            "sigmas": round((share - p) / deviation, 2) if deviation else 0.0,
            "fallbacks": dict(self.fallbacks),
        }


class Recount:
    """`keys` has the number of the key of each event, by the event's number. `revisions` are those of the channel, `candidate`
    and `factors` the digest of the canary and the factor of each version."""

    def __init__(
        self, keys: NDArray[np.int32], revisions: Mapping[int, Revision], candidate: str, factors: Mapping[str, float]
    ) -> None:
        count = int(keys.max()) + 1
        self.faults: Counter[str] = Counter(dict.fromkeys(FAULTS, 0))
        self.shares = {number: Share(np.zeros(count, np.bool_), np.zeros(count, np.bool_)) for number in revisions}
        self._keys = keys
        self._revisions = revisions
        self._candidate = candidate
        self._factors = factors
        self._seed = int(candidate.removeprefix("sha256:")[:16], 16)
        self._buckets = np.full(count, -1, np.int16)
        self._first_of_candidate = np.full(count, np.iinfo(np.int16).max, np.int16)
        self._last_of_champion = np.zeros(count, np.int16)
        self._cut_overs: dict[tuple[str, int], list[tuple[int, int]]] = {}

    def cut_over(self, record: Mapping[str, Any]) -> None:
        """Add a swap record; all swap records are added before the scores."""
        revision = self._revisions.get(record["revision"])
        if revision is None:
            self.faults["wrong_cut_over"] += 1
            return
        percent, seed = record["shares"].get("canary", 0), int(record.get("seed", "0"), 16)
        expected = revision.champion if record["role"] == "champion" else self._candidate
        is_expected = percent == revision.percent and (not percent or seed == self._seed) and record["digest"] == expected
        self.faults["wrong_cut_over"] += not is_expected
        cut_overs = self._cut_overs.setdefault((record["topic"], record["partition"]), [])
        cut_overs.append((record["cut_over_offset"], record["revision"]))
        cut_overs.sort()

    def score(self, record: Mapping[str, Any], record_key: bytes | None) -> None:
        """Add a score record with its key."""
        event, number, source = int(record["id"][1:]), record["revision"], record["source"]
        self.faults["wrong_key"] += record_key != key(at := int(self._keys[event]))
        place = source["topic"], source["partition"], source["offset"]
        if number not in self._revisions or number != self._ruling(*place):
            self.faults["wrong_revision"] += 1
            return
        revision, share = self._revisions[number], self.shares[number]
        arm = "canary" if self._bucket(at, place) < 100 * revision.percent else "champion"
        self.faults["misassigned"] += record["arm"] != arm
        reason = record.get("fallback")
        expected_digest = self._candidate if record["arm"] == "canary" and not reason else revision.champion
        role = "champion" if reason else record["arm"]
        self.faults["wrong_version"] += record["digest"] != expected_digest or record["role"] != role
        self.faults["wrong_fallback"] += reason is not None and (record["arm"] != "canary" or reason not in FALLBACKS)
        self.faults["wrong_score"] += record["score"] != self._factors.get(record["digest"], math.nan) * (event % 1_000_000)
        share.events += 1
        share.candidate += record["digest"] == self._candidate
        if reason:
            share.fallbacks[reason] += 1
        if at >= 0:
            self._answered(at, number, record, share, fallback=bool(reason))

    def figures(self) -> dict[str, Any]:
        """Return all counts, after the last record was added: `faults`, and `revisions` by number."""
        shares = {number: share.figures(self._revisions[number].percent) for number, share in self.shares.items()}
        wrong = sum(not share["keys"] or abs(share["sigmas"]) > SIGMAS for share in shares.values())
        moved_back = int((self._last_of_champion > self._first_of_candidate).sum())
        return {"faults": {**self.faults, "wrong_share": wrong, "moved_back": moved_back}, "revisions": shares}

    def _ruling(self, topic: str, partition: int, offset: int) -> int:
        """Return the revision of this event according to the swap topic; 0 if it has none."""
        cut_overs = self._cut_overs.get((topic, partition), [])
        at = bisect_right(cut_overs, (offset, 1 << 31)) - 1
        return cut_overs[at][1] if at >= 0 else 0

    def _bucket(self, at: int, place: tuple[str, int, int]) -> int:
        if (key_bytes := key(at)) is None:
            return xxh64(b"%b/%d/%d" % (place[0].encode(), *place[1:]), self._seed) % BUCKETS
        if self._buckets[at] < 0:
            self._buckets[at] = xxh64(key_bytes, self._seed) % BUCKETS
        return int(self._buckets[at])

    def _answered(self, at: int, number: int, record: Mapping[str, Any], share: Share, *, fallback: bool) -> None:
        share.keys[at] = True
        share.canary[at] |= record["arm"] == "canary"
        if record["digest"] == self._candidate:
            self._first_of_candidate[at] = min(number, self._first_of_candidate[at])
        elif not fallback:
            self._last_of_champion[at] = max(number, self._last_of_champion[at])
