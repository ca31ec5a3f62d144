"""The tables of a rollout, including hostile records."""

from typing import Any

import pytest
from rich.console import Console

from scorer.rollout.controller import log_records
from scorer.rollout.controller.log_records import EntryKind, LogEntry, Outcome, Verb
from scorer.rollout.controller.rollout_tables import rollout_document, rollout_tables
from tests.support import rollouts
from tests.unit.scorer.rollout.controller.rollout_records import Story


def text(story: Story, now: float = 2.0) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(rollout_tables(story.rollout, now))
    assert rollout_document(story.rollout)["rollout"] == story.name
    return captured.get()


def test_tables_have_steps_waits_rules_and_log() -> None:
    story = Story().entry(EntryKind.COMPARED, 0, why=["within"]).moved(1, 8).command(Verb.APPROVE)
    story.state(baked=4.0, waits=["no pairs"], judgement=rollouts.judgement())
    printed = text(story)
    for excerpt in ("4 of 10 s", "waits: no pairs", "flips", "ann approved it: because", "revision 8", "needs approval"):
        assert excerpt in printed
    assert "no controller has reported for 97 s" in text(story, 100.0)
    assert "ended here" in text(story.entry(EntryKind.ENDED, 1, outcome=Outcome.ABORTED))


@pytest.mark.parametrize("judgement", [{}, {"rules": 1}, {"champion": "x", "candidate": {}, "rules": [{}]}])
def test_unreadable_analysis_is_reported(judgement: dict[str, Any]) -> None:
    story = Story().entry(EntryKind.COMPARED, 0).moved(1, 8).state(judgement=judgement)
    assert "the analysis in the log is unreadable" in text(story)


def test_markup_and_out_of_range_times_are_printed_as_text() -> None:
    story = Story(name="[red]").entry(EntryKind.COMPARED, 0, why=["[/bold] \\"])
    late = LogEntry("[red]", 2, EntryKind.INTENDED, 2**62, "[/]", why=["[/]"])
    story.ledger.apply(b"[red]/2", log_records.encode(late))
    story.state(waits=["[/]"])
    assert "[red]" in text(story)
