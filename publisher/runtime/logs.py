"""Logging to stderr: readable lines on a terminal, one JSON object a line otherwise."""

import logging
import re
import sys
import time
from collections.abc import Callable
from typing import Any

from pythonjsonlogger.json import JsonFormatter
from rich.logging import RichHandler

from model_registry.redaction import redacted
from publisher.runtime.terminal import PlainConsole

CLIENTS = ("librdkafka", "publisher.kafka.clients")
REPEAT_SECONDS = 10.0
MOST_KINDS = 1_000  # the most different messages that are remembered; beyond that number all are forgotten


class RepeatFilter(logging.Filter):
    """Suppresses repeated messages of the Kafka clients.

    Of messages that differ only in numbers, one passes in REPEAT_SECONDS. It includes the number of messages that were
    suppressed before it. While a broker is unavailable, each connection of each client logs an error up to twenty times a
    second. Messages of other loggers always pass.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name not in CLIENTS:
            return True
        kind = re.sub(r"\d+", "#", record.getMessage())
        now = self._clock()
        at, held_back = self._passed.get(kind, (float("-inf"), 0))
        if now - at < REPEAT_SECONDS:
            self._passed[kind] = at, held_back + 1
            return False
        if len(self._passed) >= MOST_KINDS:
            self._passed.clear()
        self._passed[kind] = now, 0
        if held_back:
            record.msg = f"{record.getMessage()} ({held_back} more like this)"
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


class RedactedJson(JsonFormatter):
    """Formats a log record as one JSON object, and masks credentials in the URLs of its traceback."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name is logging's
        return redacted(str(super().formatException(ei)))


def configure(owner: dict[str, str], level: str = "INFO") -> None:
    """Configure logging. `owner` is added to every JSON line, to identify the process: {"scorer": "<name>.<replica>"}."""
    handler: logging.Handler
    if sys.stderr.isatty():
        handler = RichHandler(console=PlainConsole(stderr=True), show_path=False, rich_tracebacks=True)
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(
            RedactedJson(
                "{asctime}{levelname}{name}{message}",
                style="{",
                rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
                static_fields=owner,
            )
        )
    handler.addFilter(RepeatFilter())
    handler.addFilter(RedactionFilter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for verbose in ("librdkafka", "httpx", "httpx2"):  # httpx logs each request, with the credentials of its URL
        logging.getLogger(verbose).setLevel(logging.WARNING)
