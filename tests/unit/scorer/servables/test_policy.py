"""The version policy: one action at a time, towards the aspired version, never away from a working one."""

from hypothesis import given
from hypothesis import strategies as st

from scorer.servables.policy import KEPT_IDLE, Flip, Load, Snapshot, State, Unload, Wait, next_action

digests = st.sampled_from(["a", "b", "c", "d"])


def after(now: Snapshot, *, fit: bool) -> Snapshot:
    """The world after the action was done; a loaded version turns out fit to serve, or not."""
    known = dict(now.known)
    match next_action(now):
        case Load(digest):
            known[digest] = State.READY if fit else State.REFUSED
        case Flip(digest):
            known[digest] = known.pop(digest)
            return Snapshot(now.aspired, now.aspired_revision, digest, now.aspired_revision, known)
        case Unload(digest):
            del known[digest]
        case Wait():
            pass
    return Snapshot(now.aspired, now.aspired_revision, now.serving, now.serving_revision, known)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    known = draw(st.dictionaries(digests, st.sampled_from(State)))
    ready = [digest for digest, state in known.items() if state is State.READY]
    serving = draw(st.sampled_from([None, *ready]))
    return Snapshot(draw(st.none() | digests), draw(st.integers(0, 3)), serving, draw(st.integers(0, 3)), known)


@given(snapshots(), st.booleans())
def test_it_settles_and_stays_settled(snapshot: Snapshot, fit: bool) -> None:
    now = snapshot
    for _ in range(20):
        if next_action(now) == Wait():
            break
        now = after(now, fit=fit)
    assert next_action(now) == Wait()
    if now.aspired is not None and now.known.get(now.aspired) is State.READY:
        assert (now.serving, now.serving_revision) == (now.aspired, now.aspired_revision)
    idle = [d for d, state in now.known.items() if state is State.READY and d not in (now.serving, now.aspired)]
    if now.aspired is not None:
        assert len(idle) <= KEPT_IDLE


@given(snapshots())
def test_the_serving_version_is_never_unloaded_and_a_refused_one_never_served(snapshot: Snapshot) -> None:
    action = next_action(snapshot)
    assert action != Unload(str(snapshot.serving))
    if isinstance(action, Flip):
        assert snapshot.known[action.digest] is State.READY
    if isinstance(action, Load):
        assert action.digest not in snapshot.known


def test_a_refused_version_changes_nothing() -> None:
    assert next_action(Snapshot("b", 2, "a", 1, {"a": State.READY, "b": State.REFUSED})) == Wait()


def test_going_back_needs_no_load() -> None:
    assert next_action(Snapshot("a", 3, "b", 2, {"a": State.READY, "b": State.READY})) == Flip("a")


def test_the_same_version_under_a_new_revision_is_served_under_it() -> None:
    assert next_action(Snapshot("a", 2, "a", 1, {"a": State.READY})) == Flip("a")
