"""The loop after a refusal, and at its end: a word is left in the committed offsets only where everything before is decided."""

from types import SimpleNamespace
from unittest.mock import Mock, create_autospec

import pytest

from publisher.errors import Aborted, Evicted
from publisher.session.exactly_once import TransactionSession
from publisher.session.protocol import Counters
from scorer.crashes.aftermath import Aftermath
from scorer.intake.consumer import Intake
from scorer.intake.marks import Mark
from scorer.loop.loop import Loop
from scorer.loop.scoring import Scoring, Target
from scorer.observe.metrics import Metrics
from scorer.observe.progress import Progress
from scorer.observe.traces import Traces
from scorer.servables.manager import VersionManager
from scorer.settings import Settings

SETTINGS = Settings.model_validate(
    {
        "name": "flights",
        "replica": "a",
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "input": {"topics": ["flights"]},
        "output": {"topic": "flights.scores"},
        "model": {"source": "oci:./registry/model"},
    }
)


@pytest.mark.parametrize("failing", ["settle", "checkpoint"])
def test_after_a_last_commit_that_failed_nothing_more_is_published(failing: str) -> None:
    assert published_at_the_end(failing) == []


def test_after_a_good_end_the_partitions_have_no_owner() -> None:
    assert published_at_the_end(None) == [("flights", 0, 7, "")]


@pytest.mark.parametrize("refused_again", [0, 3])
def test_a_member_that_its_group_refuses_hears_it_out_before_it_reads_again(refused_again: int) -> None:
    """Also where the group refuses to tell it the committed offsets."""
    loop, intake, session = made()
    intake.rewind.side_effect = [Evicted("unknown member")] * refused_again + [None]
    session.tick.side_effect = [Evicted("unknown member"), None]
    intake.take.return_value = None
    loop.run(lambda: session.tick.call_count == 2, lambda: None)
    calls = [call[0] for call in intake.mock_calls if call[0] in ("hear", "rewind", "take")]
    assert calls == ["hear", "rewind"] * (refused_again + 1) + ["take"]
    assert session.recover.call_count == refused_again + 1


def published_at_the_end(failing: str | None) -> list[tuple[str, int, int, str]]:
    """What a loop commits that is told to stop at once: (topic, partition, offset, owner)."""
    loop, _, session = made()
    if failing:
        getattr(session, failing).side_effect = Aborted("the broker gave up the transaction")
    loop.run(lambda: True, lambda: None)
    offsets = [offset for call in session.publish.call_args_list for offset in call.args[1]]
    return [(o.topic, o.partition, o.offset, Mark.decode(o.metadata).owner) for o in offsets]


def made() -> tuple[Loop, Mock, Mock]:
    """A loop between an intake, with one partition, and a session."""
    intake = create_autospec(Intake, instance=True)
    intake.marks, intake.committed = {("flights", 0): Mark(owner=SETTINGS.owner)}, {("flights", 0): 7}
    intake.leader_epochs = {}
    intake.arrived, intake.epochs, intake.joined, intake.outside = set(), {}, True, {}
    intake.lag.return_value = {}
    session = create_autospec(TransactionSession, instance=True)
    session.counters = Counters()
    serving = SimpleNamespace(
        encoder=SimpleNamespace(provenance={"model": "m", "version": "1", "digest": "d", "role": "production"}),
        resolution=SimpleNamespace(revision=1),
        label="m:1",
    )
    versions = create_autospec(VersionManager, instance=True, serving=serving)
    versions.flip.return_value = None
    scoring = create_autospec(Scoring, instance=True)
    scoring.output = scoring.dead = Target("out", 1, 1_000_000)
    aftermath = create_autospec(Aftermath, instance=True)
    metrics = Metrics(session.counters, SETTINGS.model)
    return Loop(SETTINGS, intake, session, versions, scoring, metrics, Progress(0.0), Traces(), aftermath), intake, session
