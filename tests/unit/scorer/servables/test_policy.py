"""The version policy: one action at a time, towards the aspired version, never away from a working one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorer.servables.policy import KEPT_IDLE, Flip, Load, Snapshot, Unload, Wait, next_action

digests = st.sampled_from(["a", "b", "c", "d", "e"])


def after(now: Snapshot, *, fit: bool) -> Snapshot:
    """The world after the action was done; a loaded version turns out fit to serve, or not."""
    match next_action(now):
        case Load(digest):
            return replace(now, ready=[*now.ready, digest]) if fit else replace(now, refused={*now.refused, digest})
        case Flip():
            assert now.aspired is not None
            ready = sorted(now.ready, key=lambda digest: digest == now.aspired[0])  # type: ignore[index]
            return replace(now, serving=now.aspired, ready=ready)
        case Unload(digest):
            return replace(now, ready=[one for one in now.ready if one != digest])
    return now


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    ready = draw(st.lists(digests, unique=True))
    refused = draw(st.sets(digests)) - set(ready)
    revisions = st.integers(0, 3)
    serving = draw(st.tuples(st.sampled_from(ready), revisions) | st.none()) if ready else None
    return Snapshot(draw(st.tuples(digests, revisions) | st.none()), serving, ready, refused)


@given(snapshots(), st.booleans())
def test_it_settles_and_stays_settled(snapshot: Snapshot, fit: bool) -> None:
    now = snapshot
    for _ in range(20):
        now = after(now, fit=fit)
    assert next_action(now) == Wait()
    if now.aspired is None:
        return
    if now.aspired[0] in now.ready:
        assert now.serving == now.aspired
    assert len(set(now.ready) - {now.aspired[0], now.serving and now.serving[0]}) <= KEPT_IDLE


@given(snapshots())
def test_what_is_served_is_never_unloaded_and_a_refused_version_never_served(snapshot: Snapshot) -> None:
    match next_action(snapshot):
        case Unload(digest):
            assert snapshot.serving is None or digest != snapshot.serving[0]
        case Flip():
            assert snapshot.aspired is not None
            assert snapshot.aspired[0] in snapshot.ready
        case Load(digest):
            assert digest not in {*snapshot.ready, *snapshot.refused}


@pytest.mark.parametrize(
    ("snapshot", "action"),
    [
        (Snapshot(("b", 2), ("a", 1), ["a"], {"b"}), Wait()),
        (Snapshot(("a", 3), ("b", 2), ["a", "b"], ()), Flip()),
        (Snapshot(("a", 2), ("a", 1), ["a"], ()), Flip()),
        (Snapshot(("a", 2), ("a", 1), [], ()), Load("a")),
    ],
    ids=["a refused version changes nothing", "going back needs no load", "a new revision", "a served one is loaded anew"],
)
def test_the_next_action(snapshot: Snapshot, action: Load | Flip | Wait) -> None:
    assert next_action(snapshot) == action
