"""The benchmark of the native scanner measures two ways that decode to the same."""

import pytest

from tests.proofs.bench.scanner import CONTENTS, measured


@pytest.mark.debian("cc")
@pytest.mark.parametrize("content", CONTENTS)
def test_both_ways_are_measured_at_every_size(content: str) -> None:
    rows = list(measured(content, [9, 1], rounds=1, least=1e-6))
    assert [row["batch"] for row in rows] == [9, 1]
    assert all(row[way]["us"] >= 0 for row in rows for way in ("native", "msgspec"))
