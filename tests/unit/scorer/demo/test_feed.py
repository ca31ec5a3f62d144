"""The process that the demo feeds with flights."""

import subprocess
from collections.abc import Iterator

import pytest

from publisher.errors import Fatal
from scorer.demo.processes import EventFeed
from tests.support.waiting import until


def fed(*command: str, lines: Iterator[bytes]) -> EventFeed:
    return EventFeed(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL), lines)


def test_what_was_given_is_counted_if_the_process_ends_well() -> None:
    feed = fed("sh", "-c", "read one && read two", lines=iter([b"a", b"b"]))
    until(lambda: feed.count == 2, "the lines")
    assert feed.finish() == 2


def test_a_process_that_fails_is_an_error_and_not_a_wait_for_its_events() -> None:
    feed = fed("sh", "-c", "exit 4", lines=iter(lambda: b"a", None))
    with pytest.raises(Fatal, match="ended with code 4"):
        feed.finish()
