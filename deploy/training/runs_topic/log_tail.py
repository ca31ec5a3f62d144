"""Keep the last log lines of a process, which are published when its run ends."""

import logging
import traceback
from collections import deque
from datetime import UTC, datetime

from model_registry.redaction import redacted
from model_registry.untrusted_input.terminal_text import printable
from publisher.runtime.logs import TextLines
from scorer.console.training.documents import MAX_LOG

LINES = 400


class LogTail(logging.Handler):
    """Holds the newest log lines while it is used as a context manager. Credentials in URLs are masked."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(TextLines())
        self._lines: deque[str] = deque(maxlen=LINES)

    def __enter__(self) -> "LogTail":
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(redacted(self.format(record)))

    def write(self, text: str) -> None:
        """Add a line that is not logged, with the current time."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._lines.append(printable(redacted(f"{now} {text}"), lines=True))

    def write_error(self, error: BaseException) -> None:
        """Add the traceback of an unexpected error."""
        self.write("".join(traceback.format_exception(error)))

    def text(self) -> str:
        """Return the lines, at most the last MAX_LOG characters."""
        return "\n".join(self._lines)[-MAX_LOG:]
