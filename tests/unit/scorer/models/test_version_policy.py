"""The version policy: one action at a time towards the aspired versions, without a loss of a working version."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorer.models.version_policy import (
    KEPT_IDLE,
    Flip,
    LoadVersion,
    Snapshot,
    UnloadVersion,
    VersionState,
    Wait,
    is_refused,
    next_action,
)

digests = st.sampled_from(["a", "b", "c", "d", "e"])


def champion(digest: str | None) -> dict[str, str]:
    return {"champion": digest} if digest else {}


def after(snapshot: Snapshot, *, is_valid: bool) -> Snapshot:
    """Return the state after the next action. A loaded version is ready if `is_valid`, and otherwise refused."""
    states = dict(snapshot.states)
    match next_action(snapshot):
        case LoadVersion(digest):
            states[digest] = VersionState.READY if is_valid else VersionState.REFUSED
        case Flip():
            loadable = {role: digest for role, digest in snapshot.aspired.items() if states[digest] is VersionState.READY}
            for digest in loadable.values():
                states[digest] = states.pop(digest)
            return Snapshot(snapshot.aspired, snapshot.aspired_revision, loadable, snapshot.aspired_revision, states)
        case UnloadVersion(digest):
            del states[digest]
        case Wait():
            pass
    return replace(snapshot, states=states)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    states = draw(st.dictionaries(digests, st.sampled_from(VersionState)))
    ready = [digest for digest, state in states.items() if state is VersionState.READY]
    serving = champion(draw(st.sampled_from([None, *ready])))
    canaries: tuple[bool, bool] = draw(st.tuples(st.booleans(), st.booleans()))
    if serving and canaries[0]:
        serving["canary"] = draw(st.sampled_from(ready))
    aspired = champion(draw(st.none() | digests))
    if aspired and canaries[1]:
        aspired["canary"] = draw(digests)
    return Snapshot(aspired, draw(st.integers(0, 3)), serving, draw(st.integers(0, 3)), states)


@given(snapshots(), st.booleans())
def test_the_policy_settles_and_stays_settled(snapshot: Snapshot, is_valid: bool) -> None:
    current = snapshot
    for _ in range(20):
        if next_action(current) == Wait():
            break
        current = after(current, is_valid=is_valid)
    assert next_action(current) == Wait()
    if current.aspired and current.states.get(current.aspired["champion"]) is VersionState.READY:
        loadable = {
            role: digest for role, digest in current.aspired.items() if current.states.get(digest) is VersionState.READY
        }
        assert (current.serving, current.serving_revision) == (loadable, current.aspired_revision)
        assert not is_refused(current)
    needed = {*current.serving.values(), *current.aspired.values()}
    idle = [d for d, state in current.states.items() if state is VersionState.READY and d not in needed]
    if current.aspired:
        assert len(idle) <= KEPT_IDLE


@given(snapshots())
def test_a_served_version_is_never_unloaded_and_a_refused_version_is_never_served(snapshot: Snapshot) -> None:
    match next_action(snapshot):
        case UnloadVersion(digest):
            assert digest not in snapshot.serving.values()
        case Flip():
            states = {role: snapshot.states[digest] for role, digest in snapshot.aspired.items()}
            assert states["champion"] is VersionState.READY
        case LoadVersion(digest):
            assert digest not in snapshot.states


HISTORY = {
    1: {"champion": "good"},
    2: {"champion": "good", "canary": "deadly"},
    3: {"champion": "better", "canary": "deadly"},
    4: {"champion": "deadly"},
    5: {"champion": "wrong", "canary": "fresh"},
}
VALID_VERSIONS = {"good", "better", "fresh"}


def settle(snapshot: Snapshot) -> Snapshot:
    """Run the actions of the policy until it waits. The versions in VALID_VERSIONS are valid."""
    for _ in range(20):
        action = next_action(snapshot)
        snapshot = after(snapshot, is_valid=isinstance(action, LoadVersion) and action.digest in VALID_VERSIONS)
    return snapshot


def follow(serving: dict[str, str], revision: int, states: dict[str, VersionState], named_revision: int) -> Snapshot:
    """Return the state of a scorer after the channel names this revision: that revision, or the newest valid one before it."""
    snapshot = Snapshot({}, 0, serving, revision, states)
    for at in range(named_revision, revision, -1):
        snapshot = settle(replace(snapshot, aspired=HISTORY[at], aspired_revision=at))
        if not is_refused(snapshot):
            break
    return snapshot


@pytest.mark.parametrize("polled", [subset for count in range(6) for subset in itertools.combinations(HISTORY, count)])
def test_scorers_that_run_start_or_skip_polls_reach_the_same_revision_and_roles(polled: tuple[int, ...]) -> None:
    """Each scorer has polled another part of the history. The last poll is common to all."""
    for named_revision, expected in ((2, (2, "good")), (3, (3, "better")), (5, (3, "better"))):
        snapshot = Snapshot({}, 0, {}, 0, {})
        for at in (*(polled_at for polled_at in polled if polled_at < named_revision), named_revision):
            snapshot = follow(dict(snapshot.serving), snapshot.serving_revision, dict(snapshot.states), at)
        assert (snapshot.serving_revision, snapshot.serving) == (expected[0], {"champion": expected[1]})


def test_a_state_is_refused_with_its_champion_alone() -> None:
    aspired = {"champion": "a", "canary": "b"}
    states = {"a": VersionState.READY, "b": VersionState.REFUSED}
    assert is_refused(Snapshot({}, 0, {}, 0, states)), "no servable version was aspired"
    assert is_refused(Snapshot({"champion": "b", "canary": "a"}, 2, {}, 0, states))
    for serving, revision in ((champion("a"), 2), (champion("a"), 1), (champion("c"), 1), ({}, 0)):
        assert not is_refused(Snapshot(aspired, 2, serving, revision, states)), "served already, or to be served"
    assert not is_refused(Snapshot(champion("c"), 2, champion("a"), 1, states)), "it was not tried yet"


def test_a_candidate_is_left_out_only_once_it_is_refused() -> None:
    aspired = {"champion": "a", "canary": "b"}
    ready = {"a": VersionState.READY}
    assert next_action(Snapshot(aspired, 2, champion("a"), 1, ready)) == LoadVersion("b")
    assert next_action(Snapshot(aspired, 2, champion("a"), 1, ready | {"b": VersionState.REFUSED})) == Flip()
    assert next_action(Snapshot(aspired, 2, champion("a"), 2, ready | {"b": VersionState.REFUSED})) == Wait()


def test_the_candidate_of_a_refused_champion_is_not_loaded() -> None:
    aspired = {"champion": "b", "canary": "c"}
    assert next_action(Snapshot(aspired, 2, champion("a"), 1, {"a": VersionState.READY, "b": VersionState.REFUSED})) == Wait()


def test_a_served_version_that_is_reloaded_is_not_flipped_to() -> None:
    assert next_action(Snapshot(champion("a"), 2, champion("a"), 1, {})) == LoadVersion("a")
