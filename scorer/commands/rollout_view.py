"""A rollout as `scorer rollout status` shows it: as a document, and for people. Pure."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from scorer.commands.judge import shown as judgement_shown
from scorer.rollout.controller.event_log import SILENT_SECONDS, Rollout
from scorer.rollout.controller.log_records import Entry, Kind, Outcome

LATEST_MS = 253_402_300_799_000  # the end of the year 9999: what a record says need not be a time


def told(rollout: Rollout) -> dict[str, Any]:
    """A rollout as a document."""
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


def shown(rollout: Rollout, now: float) -> Group:
    """For people, at `now` (Unix seconds)."""
    champion, candidate = rollout.rivals
    parts: list[RenderableType] = [
        Text.assemble((rollout.id, "bold"), f": {candidate.version} beside {champion.version}, ", _where(rollout))
    ]
    parts.append(_steps(rollout))
    if rollout.outcome is None:
        parts += map(Text, _waits(rollout, now))
    if (judgement := rollout.judgement()) is not None:
        parts.append(_judged(judgement))
    parts.append(_log(rollout))
    return Group(*parts)


def _judged(judgement: Mapping[str, Any]) -> RenderableType:
    try:
        return judgement_shown(judgement)
    except (KeyError, TypeError, ValueError, AttributeError):
        return "its judgement does not read"


def _where(rollout: Rollout) -> Text:
    if rollout.outcome is not None:
        style = "green" if rollout.outcome is Outcome.COMPLETED else "bold red"
        return Text(str(rollout.outcome), style)
    return Text("paused", "yellow") if rollout.paused else Text("running")


def _steps(rollout: Rollout) -> Table:
    made = _table("", "step", "", "watched", "")
    state = rollout.state
    for at, each in enumerate(rollout.plan.steps):
        done = at < rollout.step or rollout.outcome is Outcome.COMPLETED
        here = "now" if rollout.outcome is None else "ended here"
        mark = "done" if done else here if at == rollout.step else ""
        baked = state.baked if state is not None and state.step == at else 0.0
        watched = f"{each.seconds:,} s" if each.seconds else ""
        if mark == "now" and each.judged:
            watched = f"{baked:,.0f} of {each.seconds:,} s"
        made.add_row(str(each), mark, watched, "asks for approval" if each.approve and not done else "")
    return made


def _waits(rollout: Rollout, now: float) -> Sequence[str]:
    waits = [] if rollout.state is None else rollout.state.waits
    silent = rollout.silent(now)
    alone = f"no controller has told anything for {silent:.0f} s: is scorer rollout run there?"
    return [*("waits: " + line for line in waits), *([alone] if silent > SILENT_SECONDS else [])]


def _log(rollout: Rollout) -> Table:
    made = _table("log", "seq", "at", "", "step", "why", "by")
    rows = [
        (each.at_ms, (str(each.seq), _what(each), _step(rollout, each.step), "; ".join(each.why), each.by))
        for each in rollout.log
    ]
    rows += [(each.at_ms, ("", "asked", _step(rollout, each.step), str(each), each.by)) for each in rollout.asked]
    for at_ms, (seq, what, step, why, by) in sorted(rows):
        at = time.strftime("%m-%d %H:%M:%SZ", time.gmtime(min(max(at_ms, 0), LATEST_MS) / 1_000))
        made.add_row(seq, at, what, step, Text(why), Text(by))
    return made


def _step(rollout: Rollout, at: int) -> str:
    return str(rollout.plan.steps[at]) if 0 <= at < len(rollout.plan.steps) else ""


def _what(entry: Entry) -> str:
    """What an entry says: what is to be done, what was, and how it ended."""
    if entry.kind is Kind.INTENDED:
        return f"to {entry.verdict}"
    if entry.kind is Kind.MOVED:
        return f"revision {entry.revision}"
    return str(entry.outcome or entry.kind)


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, title=title or None, title_justify="left", box=SIMPLE_HEAD, show_edge=False)
