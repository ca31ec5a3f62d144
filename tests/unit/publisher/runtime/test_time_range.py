import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from publisher.runtime.time_range import resolve_time


def test_a_duration_is_a_time_before_now() -> None:
    before = time.time() * 1_000
    assert before - 1 <= resolve_time("1h") + 3_600_000 <= time.time() * 1_000 + 1
    assert before - 1 <= resolve_time(timedelta(minutes=2)) + 120_000 <= time.time() * 1_000 + 1


@pytest.mark.parametrize(
    "when",
    [
        "1740830400000",
        "2025-03-01T12:00:00",
        "2025-03-01T13:00:00+01:00",
        datetime(2025, 3, 1, 12, tzinfo=UTC),
        datetime(2025, 3, 1, 13, tzinfo=timezone(timedelta(hours=1))),
    ],
)
def test_a_time_is_iso_8601_or_unix_ms_or_a_datetime(when: str | datetime) -> None:
    assert resolve_time(when) == 1_740_830_400_000


def test_a_datetime_without_a_zone_is_in_utc() -> None:
    assert resolve_time(datetime(2025, 3, 1, 12)) == 1_740_830_400_000  # noqa: DTZ001 - that is the test


@pytest.mark.parametrize("when", ["1y", "", "yesterday", "-1h"])
def test_other_texts_are_rejected_with_the_valid_forms(when: str) -> None:
    with pytest.raises(ValueError, match="is not a valid time; write a duration before now"):
        resolve_time(when)
