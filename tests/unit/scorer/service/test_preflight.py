"""Whether the process of a group member with the same replica name is alive."""

import pytest

from scorer.observability.status_record import SILENT_SECONDS
from scorer.service.preflight import RECENT_SECONDS, is_other_process_alive

EXPIRY = 17.0
OUTLASTED = EXPIRY + 0.1


@pytest.mark.parametrize(
    ("waited_seconds", "silent_seconds", "alive"),
    [
        (SILENT_SECONDS - 0.1, 0.0, None),  # its last record may have been written before the check began
        (SILENT_SECONDS, 0.0, None),  # a record alone may be forged
        (OUTLASTED - 0.1, 0.0, None),
        (OUTLASTED, 0.0, True),
        (60.0, RECENT_SECONDS - 0.1, True),
        (60.0, RECENT_SECONDS, None),
        (60.0, SILENT_SECONDS, None),
        (60.0, SILENT_SECONDS + 0.1, False),
        (SILENT_SECONDS + 0.1, SILENT_SECONDS + 0.1, False),  # no record since the start
    ],
)
def test_a_member_that_outlasts_its_session_is_alive_and_a_silent_member_is_dead(
    waited_seconds: float, silent_seconds: float, alive: bool | None
) -> None:
    assert is_other_process_alive(waited_seconds, silent_seconds, False, EXPIRY) is alive


def test_without_a_readable_status_topic_a_member_that_outlasts_its_session_is_alive() -> None:
    verdicts = [
        is_other_process_alive(waited_seconds, waited_seconds, True, EXPIRY) for waited_seconds in (0.0, EXPIRY, OUTLASTED)
    ]
    assert verdicts == [None, None, True]
