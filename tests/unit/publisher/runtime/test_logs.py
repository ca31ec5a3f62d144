"""The fields of log lines, the formats of the log, and the text that is in no log line."""

import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from publisher.runtime import logs
from publisher.runtime.logs import BURST, LONGEST_REPEAT_SECONDS, MAX_KINDS, REPEAT_SECONDS, RepeatFilter
from tests.support.canary import URL, seen_in

Configure = Callable[..., None]


@pytest.fixture
def configure(log_stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Return a function that configures logging to the stream `log_stream`, which is a terminal or not."""

    def configure_logs(level: str = "info", log_format: str = "auto", *, terminal: bool = False) -> None:
        monkeypatch.setattr(sys, "stderr", log_stream)
        monkeypatch.setattr(log_stream, "isatty", lambda: terminal)
        logs.configure({}, level, log_format)

    return configure_logs


@pytest.fixture
def log_stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Capture the log, one JSON object a line, and restore the root logger afterwards."""
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    logs.configure({"scorer": "n.a"})
    yield stream
    root.handlers[:], root.level = handlers, level


def test_credentials_of_urls_are_masked_in_messages_arguments_and_tracebacks(log_stream: io.StringIO) -> None:
    log = logging.getLogger("library")
    log.warning("cannot reach %s, retrying", URL)
    try:
        raise OSError(f"no route to {URL}")
    except OSError:
        log.exception("failed at %s", URL)
    first, second = map(json.loads, log_stream.getvalue().splitlines())
    assert first["message"] == "cannot reach http://***@127.0.0.1:1/path, retrying"
    assert "no route to http://***@127.0.0.1:1/path" in second["exc_info"]
    assert seen_in(log_stream.getvalue()) == []


def test_a_line_has_its_time_with_a_zone_and_names_its_process(log_stream: io.StringIO) -> None:
    logging.getLogger("scorer.worker").warning("recovering")
    line = json.loads(log_stream.getvalue())
    age = datetime.now(UTC) - datetime.fromisoformat(line.pop("time"))
    assert timedelta() <= age < timedelta(minutes=1)
    assert line == {"level": "WARNING", "logger": "scorer.worker", "message": "recovering", "scorer": "n.a"}


def test_a_fatal_error_is_a_line_with_its_code_and_hint(log_stream: io.StringIO) -> None:
    logs.log_fatal("no broker answers", f"check {URL}", 4)
    line = json.loads(log_stream.getvalue())
    assert datetime.fromisoformat(line.pop("time")).utcoffset() == timedelta()
    assert line == {
        "level": "CRITICAL",
        "logger": "publisher.runtime.logs",
        "message": "no broker answers",
        "scorer": "n.a",
        "code": 4,
        "hint": "check http://***@127.0.0.1:1/path",
    }


def test_the_level_is_the_least_severe_that_is_logged(log_stream: io.StringIO, configure: Configure) -> None:
    configure("error")
    logging.getLogger("scorer").warning("omitted")
    logging.getLogger("scorer").error("logged")
    assert [json.loads(line)["message"] for line in log_stream.getvalue().splitlines()] == ["logged"]


def test_a_text_line_begins_with_time_and_level_and_is_one_line(log_stream: io.StringIO, configure: Configure) -> None:
    configure(log_format="text")
    logging.getLogger("scorer").warning("the event %s", "a\n2026-01-01 forged\x1b[31m")
    (line,) = log_stream.getvalue().splitlines()
    time, level, message = line.split(maxsplit=2)
    assert datetime.fromisoformat(time).utcoffset() is not None
    assert (level, message) == ("WARNING", "the event a\\x0a2026-01-01 forged\\x1b[31m")


@pytest.mark.parametrize(
    ("log_format", "terminal", "is_json"),
    [
        ("auto", False, True),
        ("auto", True, False),
        ("json", False, True),
        ("json", True, True),
        ("text", False, False),
        ("text", True, False),
    ],
)
def test_auto_is_json_unless_stderr_is_a_terminal(configure: Configure, log_format: str, terminal: bool, is_json: bool) -> None:
    configure(log_format=log_format, terminal=terminal)
    assert logs.are_json() is is_json


UNCAUGHT = """
import sys, threading
from publisher.runtime import logs

def fail():
    raise ValueError("not expected")

logs.configure({"scorer": "n.a"})
thread = threading.Thread(target=fail, name="feed")
thread.start()
thread.join()
fail()
"""


def test_uncaught_exceptions_are_lines_with_their_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", UNCAUGHT], capture_output=True, text=True, check=False)
    in_thread, at_end = map(json.loads, ended.stderr.splitlines())
    assert ended.returncode == at_end["code"] == 1
    assert in_thread["message"] == "unexpected error in the thread feed: not expected"
    assert at_end["message"] == "unexpected error: not expected"
    assert all("in fail" in line["exc_info"] for line in (in_thread, at_end))


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def record(message: str, name: str = "librdkafka", level: int = logging.ERROR) -> logging.LogRecord:
    return logging.LogRecord(name, level, __file__, 1, message, None, None)


def test_of_the_messages_of_all_clients_about_a_broker_one_passes() -> None:
    clock = Clock()
    repeats = RepeatFilter(clock)
    passed = [repeats.filter(record(f"FAIL [client-{'ab'[k % 2]}#{k}]: refused (after {k} ms)")) for k in range(5)]
    assert passed == [True, False, False, False, False]
    assert repeats.filter(record("FAIL [client-a#1]: reset"))
    clock.now = REPEAT_SECONDS
    next_record = record("FAIL [client-c#9]: refused (after 9 ms)")
    assert repeats.filter(next_record)
    assert next_record.getMessage() == "FAIL [client-c#9]: refused (after 9 ms) (4 more like this)"


@pytest.mark.parametrize(("name", "burst"), [("librdkafka", 1), ("publisher.relay.topic_ids_watch", BURST)])
def test_a_message_that_repeats_passes_after_intervals_that_double(name: str, burst: int) -> None:
    clock = Clock()
    repeats = RepeatFilter(clock)
    passed = []
    for second in range(3_600):
        clock.now = float(second)
        if repeats.filter(record("the broker does not answer", name)):
            passed.append(second)
    intervals = [later - earlier for earlier, later in zip(passed[burst - 1 :], passed[burst:], strict=False)]
    assert passed[:burst] == list(range(burst))
    assert intervals[:7] == [10, 20, 40, 80, 160, 320, 320]
    assert set(intervals[6:]) == {int(LONGEST_REPEAT_SECONDS)}


def test_a_message_that_was_not_repeated_for_long_is_new() -> None:
    clock = Clock()
    repeats = RepeatFilter(clock)
    for _ in range(BURST + 4):
        repeats.filter(record("assigned: flights[1]", "scorer.consumer.consumer"))
    clock.now = 2 * REPEAT_SECONDS
    again = [record("assigned: flights[1]", "scorer.consumer.consumer") for _ in range(BURST)]
    assert all(map(repeats.filter, again))
    assert [record.getMessage() for record in again] == [
        "assigned: flights[1] (4 more like this)",
        *["assigned: flights[1]"] * 2,
    ]


def test_messages_of_other_loggers_differ_by_their_numbers() -> None:
    repeats = RepeatFilter(lambda: 0.0)
    assert all(repeats.filter(record(f"worker {k} has ended", "scorer.service.supervisor")) for k in range(100))


def test_a_fatal_error_always_passes() -> None:
    repeats = RepeatFilter(lambda: 0.0)
    assert all(repeats.filter(record("no broker", level=logging.CRITICAL)) for _ in range(10))


def test_the_memory_for_kinds_of_messages_is_bounded() -> None:
    repeats = RepeatFilter(lambda: 0.0)
    kinds = [chr(ord("a") + k % 26) * (1 + k // 26) for k in range(2 * MAX_KINDS)]
    assert all(repeats.filter(record(kind)) for kind in kinds)
    assert len(repeats._repeats) <= MAX_KINDS
