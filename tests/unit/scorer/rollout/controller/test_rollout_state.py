"""The state of rollouts after valid and invalid records of the topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorer.rollout.controller import log_records
from scorer.rollout.controller.log_records import EntryKind, LogEntry, LoggedOffset, Outcome, RolloutStatus, Verb
from scorer.rollout.controller.rollout_state import RolloutLog
from tests.unit.scorer.rollout.controller.rollout_records import BASE, NEW, Story


def test_the_state_follows_from_the_entries() -> None:
    story = Story()
    rollout = story.rollout
    assert (rollout.step, rollout.revision, rollout.base, rollout.moved, rollout.seq) == (-1, BASE, BASE, False, 1)
    assert rollout.at() is None
    story.entry(EntryKind.COMPARED, 0, verdict="promote")
    assert (rollout.step, rollout.compared is not None) == (0, True)
    story.entry(EntryKind.INTENDED, 1, revision=BASE)
    assert (rollout.step, rollout.pending and rollout.pending.step) == (0, 1)
    story.state(baked=3.0)
    story.entry(EntryKind.MOVED, 1, revision=BASE + 1, starts=[LoggedOffset("scores", 0, 5)])
    assert (rollout.step, rollout.revision, rollout.pending, rollout.moved) == (1, BASE + 1, None, True)
    assert (rollout.starts, rollout.state) == ({("scores", 0): 5}, None)
    story.state(baked=4.0)
    assert rollout.state == RolloutStatus("controller", 1, 1, 4.0)
    assert [story.ledger.running] == [rollout]
    story.entry(EntryKind.ENDED, 1, outcome=Outcome.ABORTED)
    ended = story.ledger.running, story.ledger.newest, rollout.outcome
    assert ended == (None, rollout, Outcome.ABORTED)
    assert [entry.kind for entry in rollout.log] == ["started", "compared", "intended", "moved", "ended"]


def test_operators_commands_are_applied() -> None:
    story = Story().command(Verb.PAUSE).command(Verb.APPROVE, 2).command(Verb.ABORT)
    rollout = story.rollout
    assert (rollout.paused, [*rollout.approved], rollout.aborted and rollout.aborted.by) == (True, [2], "ann")
    assert [str(command) for command in rollout.asked] == [
        f"ann {action} it: because" for action in ("paused", "approved", "aborted")
    ]
    assert not story.command(Verb.RESUME).rollout.paused


def test_only_one_rollout_runs_at_a_time() -> None:
    first = Story(name="a")
    second = Story(name="b", ledger=first.ledger)
    assert (list(first.ledger.rollouts), first.ledger.refused) == (["a"], {"b"})
    first.entry(EntryKind.ENDED, outcome=Outcome.REJECTED)
    second.entry(EntryKind.COMPARED, 0)
    assert "b" not in first.ledger.rollouts, "a refused rollout is not continued"
    assert Story(name="c", ledger=first.ledger).rollout is first.ledger.running


def test_entries_out_of_their_order_change_nothing() -> None:
    story = Story()
    before = log_records.encode(story.rollout.log)
    for seq, kind in ((0, EntryKind.ENDED), (5, EntryKind.ENDED), (1, EntryKind.STARTED)):
        story.ledger.apply(f"r/{seq}".encode(), log_records.encode(LogEntry("r", seq, kind, 1, "x")))
    story.ledger.apply(b"r/1", log_records.encode(LogEntry("r", 2, EntryKind.ENDED, 1, "x")))
    story.ledger.apply(b"r/1", log_records.encode(LogEntry("other", 1, EntryKind.ENDED, 1, "x")))
    assert log_records.encode(story.rollout.log) == before
    story.entry(EntryKind.ENDED, outcome=Outcome.COMPLETED).entry(EntryKind.INTENDED, 1)
    assert story.rollout.pending is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"\xff/0", b"{}"),
        (b"s/0", b"not json"),
        (b"s/0", b'{"rollout":"s","seq":0,"kind":"started","at_ms":1,"by":"x"}'),
        (
            b"s/0",
            log_records.encode(LogEntry("s", 0, EntryKind.STARTED, 1, "x", plan={"steps": 1}, champion=NEW, candidate=NEW)),
        ),
        (b"r/1", b'{"rollout":"r","seq":1,"kind":"dance","at_ms":1,"by":"x"}'),
        (b"r/state", b"[]"),
        (b"r/state", None),
        (b"r/command/1", b'{"verb":"dance","by":"x","reason":"","at_ms":1,"step":0}'),
        (b"unknown/command/1", b"{}"),
        (b"unknown/state", b"{}"),
        (b"rescore/job/3", b"{}"),
        (b"rescore/job", b"{}"),
    ],
)
def test_unreadable_records_change_nothing(key: bytes | None, value: bytes | None) -> None:
    story = Story()
    story.ledger.apply(key, value)
    assert list(story.ledger.rollouts) == ["r"]
    rollout = story.rollout
    assert (len(rollout.log), rollout.state, rollout.paused, rollout.aborted) == (1, None, False, None)


@given(st.lists(st.tuples(st.sampled_from([b"r/0", b"r/1", b"r/state", b"r/command/1", b"x/0"]), st.binary(max_size=60))))
def test_no_bytes_stop_the_ledger(records: list[tuple[bytes, bytes]]) -> None:
    ledger = RolloutLog()
    for key, value in records:
        ledger.apply(key, value)
    assert not ledger.rollouts
