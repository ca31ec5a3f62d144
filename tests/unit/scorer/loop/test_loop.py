"""The loop over a scripted group: what it publishes, under which marks, and what it does after a refusal and at its end."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, create_autospec

import orjson
import pytest

from publisher.errors import Aborted, Evicted
from publisher.process.outages import MODEL_SERVERS, Away
from publisher.session.protocol import Counters
from scorer.crashes.quarantine import Quarantine
from scorer.intake.beginnings import AnswersFrom
from scorer.intake.marks import Mark
from scorer.loop.collaborators import Collaborators
from scorer.loop.loop import Loop
from scorer.loop.scoring import Scored, Scoring, Target
from scorer.observe.metrics import Metrics
from scorer.observe.progress import Progress
from scorer.observe.traces import Traces
from scorer.servables.cost import CostModel
from scorer.servables.manager import VersionManager
from scorer.settings import Settings
from tests.unit.scorer.intake.group import TOPIC, Group, event

SETTINGS = Settings.model_validate(
    {
        "name": "flights",
        "replica": "a",
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "input": {"topics": [TOPIC]},
        "output": {"topic": "flights.scores"},
        "model": {"source": "oci:./registry/model"},
    }
)
HERE = TOPIC, 0
ORIGIN = {"model": "m", "version": "1", "digest": "d", "role": "champion"}
SCORED_BY_US = Mark(SETTINGS.owner, 1, "1", "d", topic_id="one")


class Looped:
    """A loop between a group that stands at 7 in its one partition, and a session."""

    def __init__(self, mark: Mark = SCORED_BY_US, answers: AnswersFrom | None = None) -> None:
        self.group = Group()
        self.group.committed[HERE] = 7, mark
        self.group.answers = answers
        self.session = self.group.session
        self.session.counters = Counters()
        loaded = SimpleNamespace(cost=CostModel(), inference=CostModel())
        champion: Any = SimpleNamespace(
            loaded=loaded,
            encoder=SimpleNamespace(provenance=ORIGIN),
            resolution=SimpleNamespace(revision=1),
            label="m:1",
            reason="faster",
        )
        self.versions = create_autospec(VersionManager, instance=True, serving={"champion": champion}, champion=champion)
        self.versions.flip.return_value = False
        self.scoring = create_autospec(Scoring, instance=True)
        self.scoring.output = self.scoring.dead = Target("out", 1, 1_000_000)
        self.scoring.score.side_effect = lambda batch, *_: Scored([("out", b"1", None, 0, 1, None)] * len(batch))
        quarantine = create_autospec(Quarantine, instance=True)
        quarantine.most.side_effect = lambda events: events
        self.metrics = Metrics(self.session.counters, SETTINGS.model)
        self.loop = Loop(
            Collaborators(
                SETTINGS,
                self.group.intake,
                self.session,
                self.versions,
                self.scoring,
                quarantine,
                self.metrics,
                Progress(0.0),
                Traces(),
            )
        )
        self.group.assign(0)

    def run(self, steps: int) -> None:
        """So many steps, then a stop."""
        left = iter(range(steps))
        self.loop.run(lambda: next(left, None) is None, lambda: None)

    def published(self) -> list[tuple[list[str], list[tuple[int, str]]]]:
        """Of each publish: the topics of its records; the offset and owner of each position."""
        calls = [call.args for call in self.session.publish.call_args_list]
        return [
            ([record[0] for record in records], [(p.offset, Mark.decode(p.metadata).owner) for p in offsets])
            for records, offsets, _ in calls
        ]


def test_a_batch_is_claimed_scored_and_published_with_its_offsets() -> None:
    looped = Looped()
    looped.group.waiting += [event(7), event(8)]
    looped.run(1)
    owner = SETTINGS.owner
    assert looped.published() == [([], [(7, owner)]), (["out", "out"], [(9, owner)]), ([], [(9, "")])]
    assert looped.group.intake.partitions.committed() == {HERE: 9}
    assert looped.metrics.batches._value.get() == 1


def test_the_first_batch_of_another_version_says_from_where_on_it_scored() -> None:
    looped = Looped(Mark("flights.b", 1, "0.9", "old"), AnswersFrom([3], [4]))
    for offset in (7, 8):
        looped.group.waiting.append(event(offset))
        looped.run(1)
    said = [record for call in looped.session.publish.call_args_list for record in call.args[0] if record[0] != "out"]
    assert [(topic, key) for topic, _, key, *_ in said] == [("flights.swaps", b"flights/0")]
    swap = orjson.loads(said[0][1])
    assert (swap["cut_over_offset"], swap["from_version"], swap["from_digest"]) == (7, "0.9", "old")
    assert (swap["version"], swap["role"], swap["revision"], swap["reason"]) == ("1", "champion", 1, "faster")
    assert (swap["topic_id"], swap["scores_from"], swap["letters_from"]) == ("one", [3], [4])


def test_a_batch_that_became_stale_while_it_was_scored_is_not_published() -> None:
    looped = Looped()

    def score(batch: Any, *_: Any) -> Scored:
        looped.group.revoke(0)
        looped.group.assign(0)
        return Scored([("out", b"1", None, 0, 1, None)] * len(batch))

    looped.scoring.score.side_effect = score
    looped.group.waiting.append(event(7))
    looped.run(1)
    assert "out" not in [topic for topics, _ in looped.published() for topic in topics]
    assert looped.group.reads == {HERE: 7}


def test_events_that_cannot_be_scored_now_are_read_again() -> None:
    looped = Looped()
    looped.scoring.score.side_effect = Away(MODEL_SERVERS, "no route", retry_seconds=60.0)
    looped.group.waiting.append(event(7))
    looped.run(2)
    assert looped.group.paused() == {0}
    assert looped.metrics.outages.told() == "model-servers: no route"
    assert looped.group.intake.partitions.committed() == {HERE: 7}


def test_a_partition_that_a_newer_revision_has_scored_is_not_read() -> None:
    looped = Looped(Mark("flights.b", 2))
    looped.run(1)
    assert looped.group.paused() == {0}
    assert looped.versions.hurry.called


@pytest.mark.parametrize("failing", ["settle", "checkpoint"])
def test_after_a_last_commit_that_failed_nothing_more_is_published(failing: str) -> None:
    looped = Looped()
    getattr(looped.session, failing).side_effect = Aborted("the broker gave up the transaction")
    looped.run(0)
    assert looped.published() == []


def test_after_a_good_end_the_partitions_have_no_owner() -> None:
    looped = Looped()
    looped.run(0)
    assert looped.published() == [([], [(7, "")])]


@pytest.mark.parametrize("refused_again", [0, 3])
def test_a_member_that_its_group_refuses_hears_it_out_before_it_reads_again(
    refused_again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the group refuses to tell it the committed offsets."""
    looped, intake = Looped(), Mock()
    refusals = iter([Evicted("unknown member")] * refused_again)
    rewind = looped.group.intake.rewind

    def refused() -> None:
        intake.rewind()
        if (error := next(refusals, None)) is not None:
            raise error
        rewind()

    monkeypatch.setattr(looped.group.intake, "rewind", refused)
    monkeypatch.setattr(looped.group.intake, "hear", intake.hear)
    looped.session.tick.side_effect = [Evicted("unknown member"), None]
    looped.group.waiting.append(event(7))
    looped.run(3 + refused_again)
    assert [name for name, *_ in intake.mock_calls] == ["hear", "rewind"] * (refused_again + 1)
    assert looped.session.recover.call_count == refused_again + 1
    assert (["out"], [(8, SETTINGS.owner)]) in looped.published()
