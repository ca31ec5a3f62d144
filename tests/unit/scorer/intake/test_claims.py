"""Whose name stands on the committed offsets."""

import pytest

from publisher.errors import Aborted
from scorer.intake.claims import Claims
from scorer.intake.marks import Mark
from tests.unit.scorer.intake.group import TOPIC, Group

HERE, THERE = (TOPIC, 0), (TOPIC, 1)


@pytest.fixture
def group() -> Group:
    """A member that has two partitions of another owner."""
    made = Group()
    made.committed |= {HERE: (5, Mark("n.b", 3)), THERE: (7, Mark("n.b", 3))}
    made.assign(0, 1)
    return made


def said(group: Group) -> list[tuple[int, int, str]]:
    """Partition, offset and owner of what was published last."""
    records, offsets, _ = group.session.publish.call_args.args
    assert records == []
    return [(p.partition, p.offset, Mark.decode(p.metadata).owner) for p in offsets]


def test_a_claim_names_the_owner_and_moves_nothing(group: Group) -> None:
    claims = Claims("n.a", group.intake, group.session)
    claims.claim([HERE])
    assert said(group) == [(0, 5, "n.a")]
    assert group.session.checkpoint.called
    assert group.intake.partitions.mark(HERE) == Mark("n.a", 3, topic_id="one")
    claims.leave()
    assert said(group) == [(0, 5, "")]


def test_a_claim_that_failed_is_not_remembered_and_a_last_word_that_failed_is_no_error(group: Group) -> None:
    claims = Claims("n.a", group.intake, group.session)
    group.session.checkpoint.side_effect = Aborted("no")
    with pytest.raises(Aborted):
        claims.claim([HERE])
    assert group.intake.partitions.mark(HERE).owner == "n.b"
    group.session.checkpoint.side_effect = [None, Aborted("no")]
    claims.claim([HERE])
    claims.leave()


def test_nothing_is_published_for_no_partition(group: Group) -> None:
    Claims("n.a", group.intake, group.session).claim([])
    assert not group.session.publish.called
