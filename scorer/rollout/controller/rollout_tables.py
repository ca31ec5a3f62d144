"""Present a rollout for `scorer rollout status`: as a document, and as tables for terminals. Pure."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from scorer.rollout.canary_analysis.analysis_tables import analysis_tables
from scorer.rollout.controller.log_records import EntryKind, LogEntry, Outcome
from scorer.rollout.controller.rollout_state import SILENT_SECONDS, Rollout

LATEST_MS = 253_402_300_799_000  # the end of the year 9999: a record may contain any number as its time


def rollout_document(rollout: Rollout) -> dict[str, Any]:
    """Return the rollout as the document that `--json` prints."""
    return {
        "rollout": rollout.id,
        "outcome": rollout.outcome,
        "champion": rollout.rivals.champion._asdict(),
        "candidate": rollout.rivals.candidate._asdict(),
        "revision": rollout.revision,
        "step": rollout.step,
        "paused": rollout.paused,
        "asked": [msgspec.to_builtins(command) for command in rollout.asked],
        "plan": rollout.plan.model_dump(mode="json", exclude_none=True),
        "state": None if rollout.state is None else msgspec.to_builtins(rollout.state),
        "log": [msgspec.to_builtins(entry) for entry in rollout.log],
    }


def rollout_tables(rollout: Rollout, now: float) -> Group:
    """Return the tables of a rollout: its steps, what it waits for, its last analysis and its log.

    Args:
        rollout: The rollout.
        now: The time in Unix seconds.
    """
    champion, candidate = rollout.rivals
    title = Text.assemble(
        (rollout.id, "bold"), f": candidate {candidate.version}, champion {champion.version}, ", _outcome(rollout)
    )
    parts: list[RenderableType] = [title, _steps(rollout)]
    if rollout.outcome is None:
        parts += map(Text, _waits(rollout, now))
    if (analysis := rollout.judgement()) is not None:
        parts.append(_analysis(analysis))
    parts.append(_log(rollout))
    return Group(*parts)


def _analysis(document: Mapping[str, Any]) -> RenderableType:
    try:
        return analysis_tables(document)
    except (KeyError, TypeError, ValueError, AttributeError):
        return "the analysis in the log is unreadable"


def silence_warning(rollout: Rollout, now: float) -> str | None:
    """Return a warning if no controller has reported for SILENT_SECONDS; `now` in Unix seconds."""
    silent = rollout.seconds_since_record(now)
    if silent <= SILENT_SECONDS:
        return None
    return f"no controller has reported for {silent:.0f} s: check that `scorer rollout run` is running"


def _outcome(rollout: Rollout) -> Text:
    if rollout.outcome is not None:
        style = "green" if rollout.outcome is Outcome.COMPLETED else "bold red"
        return Text(str(rollout.outcome), style)
    return Text("paused", "yellow") if rollout.paused else Text("running")


def _steps(rollout: Rollout) -> Table:
    table = _table("", "step", "", "baked", "")
    state = rollout.state
    for number, step in enumerate(rollout.plan.steps):
        done = number < rollout.step or rollout.outcome is Outcome.COMPLETED
        current = number == rollout.step and not done
        baked = f"{step.seconds:,} s" if step.seconds else ""
        if current and rollout.outcome is None and step.judged:
            seconds = state.baked if state is not None and state.step == number else 0.0
            baked = f"{seconds:,.0f} of {step.seconds:,} s"
        approval = "needs approval" if step.approve and not done else ""
        table.add_row(str(step), _progress(rollout, done=done, current=current), baked, approval)
    return table


def _progress(rollout: Rollout, *, done: bool, current: bool) -> str:
    if done:
        return "done"
    if not current:
        return ""
    return "now" if rollout.outcome is None else "ended here"


def _waits(rollout: Rollout, now: float) -> Sequence[str]:
    reasons = [] if rollout.state is None else rollout.state.waits
    warning = silence_warning(rollout, now)
    return [*("waits: " + reason for reason in reasons), *([] if warning is None else [warning])]


def _log(rollout: Rollout) -> Table:
    table = _table("log", "seq", "time", "", "step", "reason", "by")
    rows = [
        (entry.at_ms, (str(entry.seq), _event(entry), _step(rollout, entry.step), "; ".join(entry.why), entry.by))
        for entry in rollout.log
    ]
    rows += [(each.at_ms, ("", "requested", _step(rollout, each.step), str(each), each.by)) for each in rollout.asked]
    for at_ms, (seq, event, step, reason, actor) in sorted(rows):
        at = time.strftime("%m-%d %H:%M:%SZ", time.gmtime(min(max(at_ms, 0), LATEST_MS) / 1_000))
        table.add_row(seq, at, event, step, Text(reason), Text(actor))
    return table


def _step(rollout: Rollout, number: int) -> str:
    return str(rollout.plan.steps[number]) if 0 <= number < len(rollout.plan.steps) else ""


def _event(entry: LogEntry) -> str:
    if entry.kind is EntryKind.INTENDED:
        return f"to {entry.verdict}"
    if entry.kind is EntryKind.MOVED:
        return f"revision {entry.revision}"
    return str(entry.outcome or entry.kind)


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, title=title or None, title_justify="left", box=SIMPLE_HEAD, show_edge=False)
