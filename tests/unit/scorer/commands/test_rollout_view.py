"""A rollout on a terminal, whatever its records say."""

from typing import Any

import pytest
from rich.console import Console

from scorer.commands.rollout_view import shown, told
from scorer.rollout.controller import log_records
from scorer.rollout.controller.log_records import Entry, Kind, Outcome, Verb
from tests.support import rollouts
from tests.unit.scorer.rollout.controller.rollout_records import Story


def text(story: Story, now: float = 2.0) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(shown(story.rollout, now))
    assert told(story.rollout)["rollout"] == story.name
    return captured.get()


def test_steps_waits_rules_and_the_log_are_shown() -> None:
    story = Story().entry(Kind.COMPARED, 0, why=["within"]).moved(1, 8).said(Verb.APPROVE)
    story.state(baked=4.0, waits=["no pairs"], judgement=rollouts.judgement())
    said = text(story)
    for words in ("4 of 10 s", "waits: no pairs", "flips", "ann approved it: because", "revision 8", "asks for approval"):
        assert words in said
    assert "no controller has told anything for 97 s" in text(story, 100.0)
    assert "ended here" in text(story.entry(Kind.ENDED, 1, outcome=Outcome.ABORTED))


@pytest.mark.parametrize("judgement", [{}, {"rules": 1}, {"champion": "x", "candidate": {}, "rules": [{}]}])
def test_what_does_not_read_is_said(judgement: dict[str, Any]) -> None:
    story = Story().entry(Kind.COMPARED, 0).moved(1, 8).state(judgement=judgement)
    assert "its judgement does not read" in text(story)


def test_markup_and_absurd_times_are_harmless() -> None:
    story = Story(name="[red]").entry(Kind.COMPARED, 0, why=["[/bold] \\"])
    late = Entry("[red]", 2, Kind.INTENDED, 2**62, "[/]", why=["[/]"])
    story.ledger.hear(b"[red]/2", log_records.encode(late))
    story.state(waits=["[/]"])
    assert "[red]" in text(story)
