"""Whose keys a canary answers, against xxh64 written out from its specification."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorer.servables.split import BUCKETS, Split
from tests.support.xxh64 import xxh64

DIGEST = "sha256:00f1e2d3c4b5a697" + "0" * 48
KEYS = [b"k%d" % number for number in range(20_000)]


def canary(split: Split, keys: list[bytes | None]) -> list[bool]:
    found: list[bool] = split.canary(keys, [("flights", 3)] * len(keys), list(range(len(keys)))).tolist()
    return found


@given(st.lists(st.none() | st.binary(max_size=80), max_size=20), st.integers(1, 99))
def test_the_arm_is_that_of_the_hash_of_the_key_or_of_the_position(keys: list[bytes | None], percent: int) -> None:
    named = [b"flights/3/%d" % at if key is None else key for at, key in enumerate(keys)]
    wanted = [xxh64(key, 0x00F1E2D3C4B5A697) % 10_000 < 100 * percent for key in named]
    assert canary(Split.of(DIGEST, percent), keys) == wanted


def test_a_greater_share_only_adds_keys_and_each_is_as_large_as_it_says() -> None:
    before = np.zeros(len(KEYS), bool)
    for percent in (1, 5, 25, 60, 99):
        mine = np.array(canary(Split.of(DIGEST, percent), list(KEYS)))
        assert not (before & ~mine).any()
        sigma = np.sqrt(len(KEYS) * percent / 100 * (1 - percent / 100))
        assert abs(mine.sum() - len(KEYS) * percent / 100) < 4 * sigma
        before = mine


def test_another_candidate_has_other_keys() -> None:
    one, other = (np.array(canary(Split.of(f"sha256:{digit * 64}", 20), list(KEYS))) for digit in "ab")
    assert (one & other).mean() == pytest.approx(0.04, abs=0.01)
    assert BUCKETS == 10_000


def test_a_sample_is_another_share_of_the_keys_than_the_canarys() -> None:
    seed = int(hashlib.sha256(f"shadow:{DIGEST}".encode()).hexdigest()[:16], 16)
    assert canary(Split.sample(DIGEST, 20), list(KEYS)) == [xxh64(key, seed) % 10_000 < 2_000 for key in KEYS]
    sampled, mine = (np.array(canary(split, list(KEYS))) for split in (Split.sample(DIGEST, 20), Split.of(DIGEST, 20)))
    assert (sampled & mine).mean() == pytest.approx(0.04, abs=0.01)
    assert canary(Split.sample(DIGEST, 100), list(KEYS[:99])) == [True] * 99
