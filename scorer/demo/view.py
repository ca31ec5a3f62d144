"""The output of the demo on stderr: steps, commands, and a live view of progress and the flow of scores."""

from collections.abc import Mapping

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from publisher.runtime.context import now_ms
from scorer.demo.score_reader import ReceivedScores, percentiles

RECENT_MS = 2_000


class DemoView:
    """Print steps and commands; on a terminal, also show a progress bar and the flow of scores by partition."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._flow: Table | None = None
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn()
        )
        self._live = Live(console=self.console, get_renderable=self._renderable, refresh_per_second=4, transient=True)
        self._task = self._progress.add_task("", total=None, text="", visible=False)

    def __enter__(self) -> "DemoView":
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def step(self, text: str) -> None:
        """Print the title of a step."""
        self.console.print(f"\n[bold]{text}[/]")

    def command(self, line: str) -> None:
        """Print a command."""
        self.console.print(f"  $ {line}", style="cyan", markup=False)

    def print_result(self, text: str) -> None:
        """Print a result."""
        self.console.print(f"    {text}", markup=False)

    def bar(self, description: str, done: int, total: int | None, text: str = "") -> None:
        """Show the progress of a step."""
        self._progress.update(self._task, description=description, completed=done, total=total, text=text, visible=True)

    def flow(self, regions: Mapping[str, ReceivedScores]) -> None:
        """Show each region's rate and latency over the last two seconds, and the version of each partition's newest score."""
        now = now_ms()
        table = Table(box=None, pad_edge=False)
        partitions = sorted(set().union(*(arrivals.newest for arrivals in regions.values())))
        for column in ("region", "scored", "events/s", "p50 ms", "p99 ms", *(f"[{p}]" for p in partitions)):
            table.add_column(column, justify="right")
        for region, arrivals in regions.items():
            recent = arrivals.latencies(since=now - RECENT_MS)
            p50, p99 = percentiles(recent, (50, 99))
            versions = [arrivals.newest[p][0] if p in arrivals.newest else "" for p in partitions]
            rate = len(recent) * 1_000 // RECENT_MS
            table.add_row(region, f"{len(arrivals.received):,}", f"{rate:,}", str(p50), str(p99), *versions)
        self._flow = table

    def _renderable(self) -> Group:
        return Group(self._progress, *([self._flow] if self._flow else []))
