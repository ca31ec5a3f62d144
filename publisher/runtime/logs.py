"""Logs on stderr: readable lines on a terminal, one JSON object a line otherwise."""

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
MOST_KINDS = 1_000


class RepeatFilter(logging.Filter):
    """Lets what the Kafka clients say, numbers apart, through once in ten seconds: while a broker is away each connection of
    each client says so up to twenty times a second. The next line tells how many there were."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name not in CLIENTS:
            return True
        kind, now = re.sub(r"\d+", "#", record.getMessage()), self._clock()
        at, held_back = self._said.get(kind, (float("-inf"), 0))
        if now - at < REPEAT_SECONDS:
            self._said[kind] = at, held_back + 1
            return False
        if len(self._said) >= MOST_KINDS:
            self._said.clear()
        self._said[kind] = now, 0
        if held_back:
            record.msg, record.args = f"{record.getMessage()} ({held_back} more like this)", None
        return True


class RedactionFilter(logging.Filter):
    """Masks credentials in URLs: libraries log the addresses that they use."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if (masked := redacted(text)) != text:
            record.msg, record.args = masked, None
        return True


class RedactedJson(JsonFormatter):
    """One JSON object a line, without credentials in the URLs of a traceback."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name is logging's
        return redacted(str(super().formatException(ei)))


def configure(owner: dict[str, str], level: str = "INFO") -> None:
    """Set logging up. `owner` says in every line whose it is: {"scorer": "<name>.<replica>"}."""
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
    for chatty in ("librdkafka", "httpx", "httpx2"):  # httpx logs each request, with the credentials of its URL
        logging.getLogger(chatty).setLevel(logging.WARNING)
