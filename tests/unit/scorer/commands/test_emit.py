"""`scorer emit`: the pace and the keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.errors import Fatal
from scorer.commands.emit import TICK, Pace, key_of


@given(rate=st.floats(1, 10_000), count=st.integers(1, 500), hiccup=st.floats(0, 0.5))
def test_the_rate_is_kept_in_bursts_and_no_event_is_early_by_more_than_one(rate: float, count: int, hiccup: float) -> None:
    now, pace = 100.0, Pace(rate, 100.0)
    for number in range(count):
        now += pace.pause(number, now)
        assert now >= 100.0 + number / rate - TICK * (1 + 1e-6) or number / rate > hiccup
        if number == count // 2:
            now += hiccup
    assert now >= 100.0 + (count - 1) / rate - TICK * (1 + 1e-6)


def test_without_a_rate_nothing_waits() -> None:
    assert [Pace(None, 0.0).pause(number, 0.0) for number in range(3)] == [0.0, 0.0, 0.0]


def test_the_key_is_a_template_over_the_event() -> None:
    assert key_of("{carrier}-{flight}", b'{"carrier": "UA", "flight": 15}', 1) == b"UA-15"
    assert key_of(None, b"not json", 1) is None


@pytest.mark.parametrize("line", [b'{"carrier": "UA"}', b"[1]", b"not json"])
def test_an_event_without_the_keys_fields_is_named(line: bytes) -> None:
    with pytest.raises(Fatal, match="line 7"):
        key_of("{carrier}-{flight}", line, 7)
