"""The version policy: one action at a time, towards the aspired versions, never away from a working one."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scorer.servables.policy import KEPT_IDLE, Flip, Load, Snapshot, State, Unload, Wait, is_refused, next_action

digests = st.sampled_from(["a", "b", "c", "d", "e"])


def champion(digest: str | None) -> dict[str, str]:
    return {"champion": digest} if digest else {}


def after(now: Snapshot, *, fit: bool) -> Snapshot:
    """The world after the action was done; a loaded version turns out fit to serve, or not."""
    known = dict(now.known)
    match next_action(now):
        case Load(digest):
            known[digest] = State.READY if fit else State.REFUSED
        case Flip():
            for digest in now.aspired.values():
                known[digest] = known.pop(digest)
            return Snapshot(now.aspired, now.aspired_revision, now.aspired, now.aspired_revision, known)
        case Unload(digest):
            del known[digest]
        case Wait():
            pass
    return replace(now, known=known)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    known = draw(st.dictionaries(digests, st.sampled_from(State)))
    ready = [digest for digest, state in known.items() if state is State.READY]
    serving = champion(draw(st.sampled_from([None, *ready])))
    canaries: tuple[bool, bool] = draw(st.tuples(st.booleans(), st.booleans()))
    if serving and canaries[0]:
        serving["canary"] = draw(st.sampled_from(ready))
    aspired = champion(draw(st.none() | digests))
    if aspired and canaries[1]:
        aspired["canary"] = draw(digests)
    return Snapshot(aspired, draw(st.integers(0, 3)), serving, draw(st.integers(0, 3)), known)


@given(snapshots(), st.booleans())
def test_it_settles_and_stays_settled(snapshot: Snapshot, fit: bool) -> None:
    now = snapshot
    for _ in range(20):
        if next_action(now) == Wait():
            break
        now = after(now, fit=fit)
    assert next_action(now) == Wait()
    if now.aspired and all(now.known.get(digest) is State.READY for digest in now.aspired.values()):
        assert (now.serving, now.serving_revision) == (now.aspired, now.aspired_revision)
    needed = {*now.serving.values(), *now.aspired.values()}
    idle = [d for d, state in now.known.items() if state is State.READY and d not in needed]
    if now.aspired:
        assert len(idle) <= KEPT_IDLE


@given(snapshots())
def test_what_is_served_is_never_unloaded_and_a_refused_version_never_served(snapshot: Snapshot) -> None:
    match next_action(snapshot):
        case Unload(digest):
            assert digest not in snapshot.serving.values()
        case Flip():
            states = {role: snapshot.known[digest] for role, digest in snapshot.aspired.items()}
            assert states["champion"] is State.READY
            assert set(states.values()) == {State.READY} or not snapshot.serving
        case Load(digest):
            assert digest not in snapshot.known


def test_what_is_aspired_to_is_refused_once_no_flip_to_it_is_possible() -> None:
    aspired = {"champion": "a", "canary": "b"}
    known = {"a": State.READY, "b": State.REFUSED}
    assert is_refused(Snapshot({}, 0, {}, 0, known)), "nothing that could be served was seen"
    assert is_refused(Snapshot(champion("b"), 2, {}, 0, known))
    assert is_refused(Snapshot(aspired, 2, champion("a"), 1, known))
    assert not is_refused(Snapshot(aspired, 2, {}, 0, known)), "at a start the champion answers for it"
    assert not is_refused(Snapshot(champion("c"), 2, champion("a"), 1, known)), "it was not tried yet"
    assert not is_refused(Snapshot(champion("a"), 2, champion("a"), 1, known))


def test_a_served_version_that_is_loaded_anew_is_no_version_to_flip_to() -> None:
    assert next_action(Snapshot(champion("a"), 2, champion("a"), 1, {})) == Load("a")
