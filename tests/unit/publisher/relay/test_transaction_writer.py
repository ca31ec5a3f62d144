"""The rest between two small transactions."""

import pytest

from publisher.relay.transaction_writer import LONGEST_REST_SECONDS, rest_after


@pytest.mark.parametrize(
    ("commit_seconds", "seconds"), [(0.0, 0.0), (0.004, 0.004), (0.010, 0.020), (0.015, 0.045), (0.2, LONGEST_REST_SECONDS)]
)
def test_the_rest_after_a_small_transaction_grows_with_its_commit(commit_seconds: float, seconds: float) -> None:
    assert rest_after(commit_seconds) == pytest.approx(seconds)
