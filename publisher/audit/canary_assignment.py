"""Check that each event was answered by the model version to which the traffic split assigns the event's key. Pure.

A traffic split divides the keys between two versions, the champion and the canary. The audit takes the splits from the swap
records (see `SwapRecord`), which contain the first offset, the canary's share and the hash seed of a split. The bucket of a key
is `xxh64(key, seed) mod 10,000`, and a canary with p percent owns the buckets below 100 p. For an event without a key, its
position `topic/partition/offset` is hashed.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from xxhash import xxh64

from publisher.kafka.partitions import Partition

BUCKETS_A_PERCENT = 100
ALL_BUCKETS = 10_000
CHAMPION = "champion"
CANARY = "canary"


class Shares(NamedTuple):
    """A traffic split of one input partition, which applies from `offset` up to the offset of the next split.

    Attributes:
        offset: the first offset that the split applies to.
        revision: the revision of the registry channel that defines the split.
        percent: the canary's share of the keys in percent.
        seed: the seed of the hash of keys.
    """

    offset: int
    revision: int
    percent: int = 0
    seed: int = 0


class Answered(NamedTuple):
    """The fields of one score record that are checked.

    Attributes:
        offset: the input offset of the event.
        key: the key of the event; None if the event has no key.
        arm: the role to which the event's key is assigned according to the score record: champion or canary.
        role: the role of the version that has scored the event. The champion may also score events that are assigned to the
            canary.
    """

    offset: int
    key: bytes | None
    arm: str
    role: str


class Assignment:
    """Checks the scores of one input partition against its traffic splits."""

    def __init__(self, source: Partition) -> None:
        self._source = source
        self._shares: list[Shares] = []

    def add(self, shares: Shares) -> None:
        """Add a traffic split. A repeated split is ignored."""
        # Several swap records may contain the same split.
        self._shares = sorted({*self._shares, shares})

    def misassigned(self, answers: Iterable[Answered]) -> list[int]:
        """Return the input offsets of the events that were scored in a wrong role.

        A score is correct if `arm` is the role that the traffic split assigns to the event's key, and `role` is this role or
        the champion.
        """
        starts = [shares.offset for shares in self._shares]
        return [answer.offset for answer in answers if not self._right(answer, starts)]

    def _right(self, answer: Answered, starts: Sequence[int]) -> bool:
        at = bisect_right(starts, answer.offset) - 1
        arm = CHAMPION if at < 0 else self._arm(self._shares[at], answer)
        return answer.arm == arm and answer.role in (arm, CHAMPION)

    def _arm(self, shares: Shares, answer: Answered) -> str:
        if not shares.percent:
            return CHAMPION
        topic, partition = self._source
        key = f"{topic}/{partition}/{answer.offset}".encode() if answer.key is None else answer.key
        bucket = xxh64(key, seed=shares.seed).intdigest() % ALL_BUCKETS
        return CANARY if bucket < shares.percent * BUCKETS_A_PERCENT else CHAMPION
