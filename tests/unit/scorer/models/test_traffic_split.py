"""The keys that a canary answers, compared with xxh64 implemented from its specification."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorer.decoding.batch import Batch, Place
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.models.traffic_split import BUCKETS, TrafficSplit
from scorer.native import xxhash
from scorer.native.byte_columns import ByteColumn
from scorer.native.fetch import MessageColumns
from scorer.native.load import NativeLibrary
from tests.support.xxh64 import xxh64

DIGEST = "sha256:00f1e2d3c4b5a697" + "0" * 48
KEYS = [b"k%d" % number for number in range(20_000)]


def batch(keys: list[bytes | None]) -> Batch:
    count = len(keys)
    offsets = list(range(count))
    return Batch(["flights"] * count, [3] * count, offsets, keys, [b"{}"] * count, [0] * count, [None] * count)


def packed(keys: list[bytes | None]) -> ColumnarBatch:
    """Return the keys as columns, with other bytes around the keys."""
    count = len(keys)
    bounds = np.cumsum([2, *(len(key or b"") for key in keys)])
    text = np.frombuffer(b"<<" + b"".join(key or b"" for key in keys) + b">>", np.uint8)
    texts = ByteColumn(text, bounds[:-1], bounds[1:], np.array([key is None for key in keys], np.uint8))
    zeros = np.zeros(count, np.int32)
    columns = MessageColumns(
        [("flights", 3)], zeros, np.arange(count), np.zeros(count, np.int64), zeros, zeros, texts, texts, None
    )
    return ColumnarBatch(columns, "empty")


EVENTS = st.tuples(
    st.sampled_from([("flights", 0), ("flights", 11), ("é" * 100, 2_147_483_647)]),
    st.integers(0, 2**62),
    st.none() | st.binary(max_size=40),
)


@given(st.lists(EVENTS, min_size=1, max_size=20), st.integers(0, 2**64 - 1))
def test_an_event_without_a_key_goes_by_its_position_in_any_partition(
    events: list[tuple[Place, int, bytes | None]], seed: int
) -> None:
    partitions, offsets, keys = map(list, zip(*events, strict=True))
    lists = Batch([t for t, _ in partitions], [p for _, p in partitions], offsets, keys, [b""] * len(keys), [0] * len(keys), [])
    columns = packed(keys).columns
    columns.places = sorted(set(partitions))
    columns.lanes = np.array([columns.places.index(partition) for partition in partitions], np.int32)
    columns.offsets = np.array(offsets, np.int64)
    key_texts = [f"{topic}/{p}/{at}".encode() if key is None else key for (topic, p), at, key in events]
    expected = [xxh64(text, seed) % BUCKETS < 5_000 for text in key_texts]
    assert TrafficSplit(seed, 5_000).canary(lists).tolist() == expected
    assert TrafficSplit(seed, 5_000).canary(ColumnarBatch(columns, "empty")).tolist() == expected
    position_texts = lists.position_texts(np.arange(len(keys)))
    assert [*ColumnarBatch(columns, "empty").position_texts(np.arange(len(keys)))] == position_texts


def canary(split: TrafficSplit, keys: list[bytes | None]) -> list[bool]:
    in_canary: list[bool] = split.canary(batch(keys)).tolist()
    return in_canary


@given(st.lists(st.binary(max_size=100), max_size=20), st.integers(0, 2**64 - 1))
def test_the_hash_is_that_of_the_specification(texts: list[bytes], seed: int) -> None:
    expected = [xxh64(text, seed) for text in texts]
    assert xxhash.xxh64(texts, seed).tolist() == expected
    assert xxhash.xxh64(packed([*texts, b"k"]).columns.keys, seed).tolist() == [*expected, xxh64(b"k", seed)]


def test_the_split_is_the_same_without_the_native_part(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[bytes | None] = [b"k%d" % number * (number % 9) for number in range(300)]
    keys[7] = None
    natively = TrafficSplit.of(DIGEST, 20).canary(packed(keys))
    monkeypatch.setattr(xxhash, "native_library", lambda: NativeLibrary(None, "switched off"))
    monkeypatch.setattr("scorer.decoding.columnar_batch.librdkafka_plugin", lambda: None)
    assert (TrafficSplit.of(DIGEST, 20).canary(packed(keys)) == natively).all()


@given(st.lists(st.none() | st.binary(max_size=80), max_size=20), st.integers(1, 99))
def test_the_arm_is_that_of_the_hash_of_the_key_or_of_the_position(keys: list[bytes | None], percent: int) -> None:
    key_texts = [b"flights/3/%d" % at if key is None else key for at, key in enumerate(keys)]
    expected = [xxh64(key, 0x00F1E2D3C4B5A697) % 10_000 < 100 * percent for key in key_texts]
    assert canary(TrafficSplit.of(DIGEST, percent), keys) == expected
    if keys:
        assert TrafficSplit.of(DIGEST, percent).canary(packed(keys)).tolist() == expected
    assert [
        TrafficSplit.of(DIGEST, percent).bucket(key, ("flights", 3), at) < 100 * percent for at, key in enumerate(keys)
    ] == expected


def test_a_greater_share_only_adds_keys_and_has_the_configured_size() -> None:
    before = np.zeros(len(KEYS), bool)
    for percent in (1, 5, 25, 60, 99):
        selected = np.array(canary(TrafficSplit.of(DIGEST, percent), list(KEYS)))
        assert not (before & ~selected).any()
        sigma = np.sqrt(len(KEYS) * percent / 100 * (1 - percent / 100))
        assert abs(selected.sum() - len(KEYS) * percent / 100) < 4 * sigma
        before = selected


def test_another_candidate_has_other_keys() -> None:
    of_candidate_a, of_candidate_b = (
        np.array(canary(TrafficSplit.of(f"sha256:{digit * 64}", 20), list(KEYS))) for digit in "ab"
    )
    assert (of_candidate_a & of_candidate_b).mean() == pytest.approx(0.04, abs=0.01)
    assert BUCKETS == 10_000


def test_a_sample_is_another_share_of_the_keys_than_the_canarys() -> None:
    seed = int(hashlib.sha256(f"shadow:{DIGEST}".encode()).hexdigest()[:16], 16)
    assert canary(TrafficSplit.sample(DIGEST, 20), list(KEYS)) == [xxh64(key, seed) % 10_000 < 2_000 for key in KEYS]
    sampled, selected = (
        np.array(canary(split, list(KEYS))) for split in (TrafficSplit.sample(DIGEST, 20), TrafficSplit.of(DIGEST, 20))
    )
    assert (sampled & selected).mean() == pytest.approx(0.04, abs=0.01)
    assert canary(TrafficSplit.sample(DIGEST, 100), list(KEYS[:99])) == [True] * 99
