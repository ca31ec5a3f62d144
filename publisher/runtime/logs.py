"""Logging of long-running processes to stderr, as JSON lines or as text, with repeated messages suppressed.

The fields of a JSON line are in `scorer/docs/logs.md`.
"""

import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from pythonjsonlogger.json import JsonFormatter
from rich.logging import RichHandler

from model_registry.redaction import redacted
from model_registry.untrusted_input.terminal_text import printable
from publisher.runtime.terminal import PlainConsole

log = logging.getLogger(__name__)

CLIENTS = ("librdkafka", "publisher.kafka.clients")
BURST = 3  # messages of a kind that pass at once, except those of CLIENTS
REPEAT_SECONDS = 10.0  # the first interval between messages of a kind; each further interval is twice as long
LONGEST_REPEAT_SECONDS = 320.0
MAX_KINDS = 1_000  # the most different messages that are remembered; beyond that number all are forgotten
REPORT_HINT = "this is a defect of scorestream; report it with the traceback"


@dataclass(slots=True)
class _Repeats:
    """Equal messages: when the last one arrived, when the last one was logged, and how many were suppressed since then."""

    arrived_at: float
    passed_at: float
    burst_left: int
    interval: float = REPEAT_SECONDS
    suppressed: int = 0


class RepeatFilter(logging.Filter):
    """Suppresses repeated messages, so that an outage does not fill the log.

    Of equal messages, the first BURST are logged. After that, one is logged after REPEAT_SECONDS, the next one after twice this
    time, and so on. Each of them states how many were suppressed before it. Critical messages are always logged.
    """

    # The longest interval is LONGEST_REPEAT_SECONDS. A message that has not arrived for two intervals is treated as new. While
    # a broker is unavailable, each connection of each Kafka client logs an error up to twenty times a second. Messages of Kafka
    # clients are therefore equal even if numbers and names in brackets differ, and at first only one of them passes.

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._repeats: dict[tuple[str, str], _Repeats] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.CRITICAL:
            return True
        text = record.getMessage()
        kind = record.name, re.sub(r"\[[^]]*\]|\d+", "#", text) if record.name in CLIENTS else text
        now = self._clock()
        repeats = self._repeats.get(kind)
        if repeats is None or now - repeats.arrived_at >= 2 * repeats.interval:
            if len(self._repeats) >= MAX_KINDS:
                self._repeats.clear()
            suppressed = repeats.suppressed if repeats is not None else 0
            self._repeats[kind] = _Repeats(now, now, 0 if record.name in CLIENTS else BURST - 1)
        elif repeats.burst_left:
            repeats.burst_left -= 1
            repeats.arrived_at = repeats.passed_at = now
            suppressed = 0
        elif now - repeats.passed_at < repeats.interval:
            repeats.arrived_at = now
            repeats.suppressed += 1
            return False
        else:
            suppressed = repeats.suppressed
            repeats.arrived_at = repeats.passed_at = now
            repeats.interval = min(2 * repeats.interval, LONGEST_REPEAT_SECONDS)
            repeats.suppressed = 0
        if suppressed:
            record.msg = f"{text} ({suppressed} more like this)"
            record.args = None
        return True


class RedactionFilter(logging.Filter):
    """Masks credentials in the URLs of log messages, because libraries log the addresses that they use."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if (masked := redacted(text)) != text:
            record.msg = masked
            record.args = None
        return True


class JsonLines(JsonFormatter):
    """Formats a log record as one JSON object with a time in UTC, and masks credentials in the URLs of its traceback."""

    def __init__(self, owner: Mapping[str, str]) -> None:
        super().__init__(
            "{asctime}{levelname}{name}{message}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
            static_fields=dict(owner),
        )

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - of logging
        """Return the time of the record in ISO 8601, in UTC, with milliseconds."""
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name is logging's
        return redacted(str(super().formatException(ei)))


class TextLines(logging.Formatter):
    """Formats a log record as one line for people: time with zone, level and message. A traceback follows on its own lines."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-8s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - of logging
        """Return the local time of the record in ISO 8601, with its zone."""
        return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        """Return the line with control characters escaped, because messages may contain text of topics."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name is logging's
        return printable(redacted(str(super().formatException(ei))), lines=True)


def configure(owner: Mapping[str, str], level: str = "info", log_format: str = "auto") -> None:
    """Configure logging to stderr.

    With JSON, uncaught exceptions are logged like other messages.

    Args:
        owner: the fields that identify the process in every JSON line: {"scorer": "<name>.<replica>"}.
        level: the least severe level that is logged, in upper or lower case.
        log_format: `json`, `text`, or `auto`: text if stderr is a terminal, JSON otherwise.
    """
    handler: logging.Handler
    if writes_json(log_format):
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines(owner))
    elif sys.stderr.isatty():
        handler = RichHandler(console=PlainConsole(stderr=True), show_path=False, rich_tracebacks=True)
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(TextLines())
    handler.addFilter(RepeatFilter())
    handler.addFilter(RedactionFilter())
    sys.excepthook = _log_uncaught if writes_json(log_format) else sys.__excepthook__
    threading.excepthook = _log_uncaught_in_thread if writes_json(log_format) else threading.__excepthook__
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for verbose in ("librdkafka", "httpx", "httpx2"):  # httpx logs each request, with the credentials of its URL
        logging.getLogger(verbose).setLevel(logging.WARNING)


def writes_json(log_format: str) -> bool:
    """Return whether a process with this `log.format` logs JSON lines. With `auto` it does if stderr is no terminal."""
    return log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())


def are_json() -> bool:
    """Return whether logging is configured, and writes JSON lines."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


def log_fatal(message: str, hint: str, code: int) -> None:
    """Log the error with which this process ends: its exit code is the field `code`, its remedy the field `hint`."""
    log.critical("%s", message, extra={"code": code, "hint": redacted(hint)})


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    log.critical("unexpected error: %s", error, exc_info=(kind, error, trace), extra={"code": 1, "hint": REPORT_HINT})


def _log_uncaught_in_thread(failure: threading.ExceptHookArgs) -> None:
    if failure.exc_value is not None:
        name = failure.thread.name if failure.thread is not None else "a thread"
        trace = (failure.exc_type, failure.exc_value, failure.exc_traceback)
        log.error("unexpected error in the thread %s: %s", name, failure.exc_value, exc_info=trace)
