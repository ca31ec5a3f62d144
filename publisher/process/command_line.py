"""What the commands `scorer` and `publisher` say on stderr: findings as they come, and an error as one line with a hint."""

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import typer
from rich.console import Console

from publisher.process.time_window import TimeWindow

talk = Console(stderr=True, highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `hint` is the way out where it is not ok."""

    check: str
    ok: bool
    detail: str
    hint: str = ""


def tell(findings: Iterable[Finding], *, silently: bool) -> dict[str, Any]:
    """Tell each as it comes, or none of them; all as JSON."""
    found = []
    for finding in findings:
        found.append(asdict(finding))
        if silently:
            continue
        talk.print(f"{'[green]ok[/]  ' if finding.ok else '[red]FAIL[/]'} {finding.check}: ", end="")
        talk.print(finding.detail, markup=False)
        if finding.hint and not finding.ok:
            talk.print(f"     hint: {finding.hint}", markup=False)
    return {"ok": all(finding["ok"] for finding in found), "checks": found}


def time_window(start: str | None, end: str | None) -> TimeWindow:
    """Of --from and --to. Raises BadParameter."""
    try:
        return TimeWindow.of(start, end)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def run(app: typer.Typer, *others: type[Exception]) -> None:
    """A command's entry point. `others` have a hint and an exit code, as Fatal does."""
    from publisher.errors import Fatal
    from publisher.process.configuration import SettingsError

    refusals: tuple[type[Exception], ...] = (Fatal, *others)
    try:
        app()
    except SettingsError as error:
        _end(2, str(error).splitlines())
    except refusals as error:
        _end(getattr(error, "exit_code", 4), [str(error)], getattr(error, "hint", ""))
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(130)


def _end(code: int, errors: Iterable[str], hint: str = "") -> None:
    for error in errors:
        talk.print(f"error: {error}", markup=False)
    if hint:
        talk.print(f"hint: {hint}", markup=False)
    sys.exit(code)
