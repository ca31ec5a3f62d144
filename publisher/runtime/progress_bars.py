"""Progress bars of commands: on stderr, only on a terminal, and only for work that takes longer than DELAY_SECONDS."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from publisher.kafka.partitions import Spans
from publisher.kafka.reader import PartitionBatch, TopicReader
from publisher.runtime.command_line import err_console

DELAY_SECONDS = 2.0

ShowProgress = Callable[[str, int, int | None], None]
"""A function to call with the description of the work, the completed amount and the total amount (None if unknown)."""


def ignore_progress(description: str, done: int, total: int | None) -> None:
    """Show nothing."""


@contextmanager
def progress_bars(console: Console = err_console, delay_seconds: float = DELAY_SECONDS) -> Iterator[ShowProgress]:
    """Yield a function that shows the progress of work, one bar for each description.

    The bars appear with the first call after `delay_seconds`, and disappear at the end of the `with` block.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    tasks: dict[str, TaskID] = {}
    start = time.monotonic()

    def show(description: str, done: int, total: int | None) -> None:
        if description not in tasks:
            tasks[description] = bars.add_task(description, total=total)
        bars.update(tasks[description], completed=done, total=total)
        if not bars.live.is_started and time.monotonic() - start >= delay_seconds:
            bars.start()

    try:
        yield show
    finally:
        if bars.live.is_started:
            bars.stop()


def read_with_progress(
    reader: TopicReader, spans: Spans, show: ShowProgress = ignore_progress, description: str = "reading"
) -> Iterator[PartitionBatch]:
    """Yield the committed records of offset ranges as `TopicReader.read` does, and show the number of completed offsets."""
    remaining = {partition: stop - start for partition, (start, stop) in spans.items()}
    total = sum(remaining.values())
    for batch in reader.read(spans):
        yield batch
        remaining[batch.partition] = spans[batch.partition][1] - batch.offsets[-1] - 1
        show(description, total - sum(remaining.values()), total)
