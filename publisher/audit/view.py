"""The audit for people: progress while it reads, a table of counts with the first places, and the verdict."""

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from publisher.audit.ledger import FAULTS, Report
from publisher.audit.topics import Plan, audit
from publisher.kafka.clients import KafkaSettings


def audited(settings: KafkaSettings, plan: Plan, timeout: float, talk: Console) -> Report:
    """Run the audit, with progress bars where `talk` is a terminal. Raises Fatal as `audit` does. `timeout` is in seconds."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=talk, transient=True, disable=not talk.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(f"reading {what}")
            bars.update(tasks[what], completed=done, total=total)

        return audit(settings, plan, show, timeout)


def table(report: Report) -> Table:
    """Each count, and where the first of each fault are."""
    shown = Table("count", "", "first positions (topic/partition/offset)", title="audit")
    for name, value in report.to_dict().items():
        if name in ("clean", "examples"):
            continue
        style = "bold red" if name in FAULTS and value else ""
        shown.add_row(name, f"{value:,}", "\n".join(report.examples.get(name, [])), style=style)
    return shown


def verdict(report: Report) -> str:
    """One line, with rich's markup."""
    found = [f"{name} {getattr(report, name):,}" for name in FAULTS if getattr(report, name)]
    return f"[red]not clean[/]: {', '.join(found)}" if found else "[green]clean[/]"
