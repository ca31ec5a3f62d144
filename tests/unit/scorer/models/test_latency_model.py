"""The estimated duration of a batch, from observed batches."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorer.models.latency_model import LatencyModel


def fitted(samples: Iterable[tuple[int, float]]) -> LatencyModel:
    model = LatencyModel()
    for size, seconds in samples:
        model.observe(size, seconds)
    return model


def expected(model: LatencyModel, size: int) -> float:
    a, b = model.line()
    return a + b * size


costs = st.floats(0, 0.1)


@given(a=costs, b=st.floats(1e-7, 1e-3), sizes=st.lists(st.integers(1, 4096), min_size=2, max_size=30, unique=True))
def test_the_model_fits_the_line_of_its_samples(a: float, b: float, sizes: list[int]) -> None:
    model = fitted((size, a + b * size) for size in sizes)
    for size in sizes:
        assert expected(model, size) == pytest.approx(a + b * size, rel=1e-2, abs=1e-6)


@given(st.lists(st.tuples(st.integers(1, 4096), st.floats(0, 10)), min_size=1, max_size=50))
def test_both_parts_of_the_cost_are_never_negative(samples: list[tuple[int, float]]) -> None:
    a, b = fitted(samples).line()
    assert a >= 0
    assert b >= 0


def test_old_batches_are_forgotten() -> None:
    model = fitted([(1, 1.0), (100, 100.0)] * 10)
    for size in (1, 100) * 500:
        model.observe(size, size * 0.001)
    assert expected(model, 50) == pytest.approx(0.05, rel=0.05)
