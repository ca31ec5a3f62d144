"""Logs on stderr: readable lines on a terminal, one JSON object a line otherwise."""

import logging
import sys

from pythonjsonlogger.json import JsonFormatter
from rich.console import Console
from rich.logging import RichHandler


def configure(owner: dict[str, str], level: str = "INFO") -> None:
    """Set logging up. `owner` says in every line whose it is: {"scorer": "<name>.<replica>"}."""
    handler: logging.Handler
    if sys.stderr.isatty():
        handler = RichHandler(console=Console(stderr=True), show_path=False, rich_tracebacks=True)
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(
            JsonFormatter(
                "{asctime}{levelname}{name}{message}",
                style="{",
                rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
                static_fields=owner,
            )
        )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in ("librdkafka", "httpx"):  # a line for each request to the registry tells an operator nothing
        logging.getLogger(chatty).setLevel(logging.WARNING)
