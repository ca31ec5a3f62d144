"""Repetitions of ids: exact while the table suffices, an estimate after that."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.audit.repeated_ids import RepeatedIds


@given(st.lists(st.lists(st.integers(-20, 20))))
def test_exact_while_the_table_suffices(batches: list[list[int]]) -> None:
    ids = RepeatedIds(limit=64, pending_limit=5)
    for batch in batches:
        ids.add(np.array(batch, np.int64))
    mentions = Counter(id_ for batch in batches for id_ in batch)
    assert ids.count() == sum(count - 1 for count in mentions.values())
    assert ids.sampled == 1


def test_an_estimate_when_it_is_full() -> None:
    ids = RepeatedIds(limit=4_096, pending_limit=1_000)
    once, thrice = np.arange(100_000), np.arange(100_000, 150_000)
    for hashes in np.array_split(np.concatenate([once, thrice, thrice, thrice]), 97):
        ids.add(hashes)
    assert ids.sampled == 64
    assert ids.count() == pytest.approx(100_000, rel=0.1)
