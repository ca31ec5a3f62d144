"""The feed of flights to a process."""

import subprocess
from collections.abc import Iterator

import pytest

from publisher.errors import Fatal
from scorer.demo.processes import EventFeed
from tests.support.waiting import until


def start_feed(*command: str, lines: Iterator[bytes]) -> EventFeed:
    return EventFeed(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL), lines)


def test_written_lines_are_counted_if_the_process_succeeds() -> None:
    feed = start_feed("sh", "-c", "read one && read two", lines=iter([b"a", b"b"]))
    until(lambda: feed.count == 2, "the lines")
    assert feed.finish() == 2


def test_failed_process_is_an_error() -> None:
    feed = start_feed("sh", "-c", "exit 4", lines=iter(lambda: b"a", None))
    with pytest.raises(Fatal, match="ended with code 4"):
        feed.finish()
