"""Whether a process that the group still counts under our name lives."""

import pytest

from scorer.observability.status_record import SILENT_SECONDS
from scorer.service.preflight import TELLING_SECONDS, twin_lives

EXPIRY = 17.0
OUTLASTED = EXPIRY + 0.1


@pytest.mark.parametrize(
    ("waited", "silent", "lives"),
    [
        (SILENT_SECONDS - 0.1, 0.0, None),  # what it tells may have been told before we began
        (SILENT_SECONDS, 0.0, None),  # a record alone may be forged
        (OUTLASTED - 0.1, 0.0, None),
        (OUTLASTED, 0.0, True),
        (60.0, TELLING_SECONDS - 0.1, True),
        (60.0, TELLING_SECONDS, None),
        (60.0, SILENT_SECONDS, None),
        (60.0, SILENT_SECONDS + 0.1, False),
        (SILENT_SECONDS + 0.1, SILENT_SECONDS + 0.1, False),  # never heard
    ],
)
def test_a_member_that_outlasts_its_session_lives_and_one_that_is_silent_is_dead(
    waited: float, silent: float, lives: bool | None
) -> None:
    assert twin_lives(waited, silent, False, EXPIRY) is lives


def test_where_nothing_can_be_heard_one_that_outlasts_its_session_lives() -> None:
    assert [twin_lives(waited, waited, True, EXPIRY) for waited in (0.0, EXPIRY, OUTLASTED)] == [None, None, True]
