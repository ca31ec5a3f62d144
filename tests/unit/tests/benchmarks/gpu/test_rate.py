"""The rate of a drained topic is that of its batches, few and large or many and small."""

import pytest

from tests.benchmarks.gpu.on_broker import rate_of


def test_the_time_before_the_first_batch_does_not_count() -> None:
    assert rate_of([at for at in (5_000.0, 6_000.0, 7_000.0) for _ in range(512)]) == pytest.approx(512)
    assert rate_of([5_000.0 + number for number in range(2_001)]) == pytest.approx(1_000)
    with pytest.raises(AssertionError, match="too few to measure a rate"):
        rate_of([5_000.0] * 400)
