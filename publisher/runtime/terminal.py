"""The console of all commands. It escapes control characters, since text from topics and registries is untrusted."""

import logging
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from model_registry.untrusted_input.terminal_text import printable


class PlainConsole(Console):
    """A console that prints text literally: without markup, and with control characters escaped.

    Styles and tables are still drawn: rich writes their control sequences separately from text.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, which has its own exit code. rich itself would exit with 1, the code of a failed check."""
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as rich does, with escaped text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text, lines=True))


class ConsoleLogHandler(logging.Handler):
    """Prints warnings and errors of a command that does not configure logging, one line each."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        self._console.print(f"{record.levelname.lower()}: {record.getMessage()}")
