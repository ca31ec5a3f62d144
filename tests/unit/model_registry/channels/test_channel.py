"""Channels: moves, rising revisions, and a history without losses by concurrent writers."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC
from itertools import islice
from multiprocessing import get_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.channels import channel, history, roles
from model_registry.channels.channel import Resolution
from model_registry.channels.history import ChannelMove
from model_registry.channels.move_request import MoveRequest
from model_registry.errors import BadReference, Corrupt, NotFound, Refused, RegistryError, Unreachable
from model_registry.oci import manifest, tags
from model_registry.stores.oci_layout import LayoutStore
from tests.conformance.store import described, put_manifest
from tests.unit.model_registry import roles_index
from tests.unit.model_registry.conftest import NOW, MakePackage, promote, push_versions

PROCESSES, MOVES = 3, 10


@pytest.fixture
def digests(store: LayoutStore, make_package: MakePackage) -> dict[str, str]:
    return push_versions(store, make_package, "1.0.0", "2.0.0")


def test_a_move_is_recorded_in_the_history(store: LayoutStore, digests: dict[str, str]) -> None:
    first, second = promote(store, "1.0.0"), promote(store, "2.0.0", reason="better AUC: 0.91\nsays Zoë")
    assert first == ChannelMove("prod", 1, "op@host", "", NOW.astimezone(UTC), None, None, digests["1.0.0"], "1.0.0")
    assert second.from_digest == digests["1.0.0"]
    assert (second.from_version, second.to_version, second.to_digest) == ("1.0.0", "2.0.0", digests["2.0.0"])
    assert channel.history(store, "prod") == [first, second]
    assert channel.history(store, "2.0.0") == []
    assert channel.resolve(store, "2.0.0") == Resolution(digests["2.0.0"], "2.0.0", 0)
    assert store.tags() == ["1.0.0", "2.0.0", "_h.prod.000001", "_h.prod.000002", "prod"]


def test_a_digest_names_its_version_and_is_no_channel(store: LayoutStore, digests: dict[str, str]) -> None:
    promote(store, "1.0.0")
    assert channel.resolve(store, digests["2.0.0"]) == Resolution(digests["2.0.0"], "2.0.0", 0)
    with pytest.raises(NotFound):
        channel.resolve(store, f"sha256:{'0' * 64}")


def test_channels_have_separate_histories(store: LayoutStore, digests: dict[str, str]) -> None:
    for name in ("prod", "canary", "prod.eu", "prod"):
        promote(store, "1.0.0", name)
    assert {name: channel.resolve(store, name).revision for name in ("prod", "canary", "prod.eu")} == {
        "prod": 2,
        "canary": 1,
        "prod.eu": 1,
    }
    assert digests["1.0.0"] == channel.history(store, "prod.eu")[0].to_digest


def test_only_versions_are_promoted(store: LayoutStore, digests: dict[str, str]) -> None:
    promote(store, "1.0.0")
    for version in ("3.0.0", "prod", "_h.prod.000001", digests["1.0.0"]):
        with pytest.raises(NotFound, match="has no version") as caught:
            promote(store, version, "canary")
        assert caught.value.hint == "the available versions are: 1.0.0, 2.0.0"
    assert tags.channels(store.tags()) == ["prod"]


@pytest.mark.parametrize(
    ("name", "reason", "fault"),
    [
        *((name, "", "is not a valid name of a channel") for name in ("", "_h.prod", "-x", "a/b", "x" * 65, "a b")),
        ("prod", "x" * 5000, "the reason has 5000 characters"),
    ],
)
def test_a_name_or_a_reason_that_cannot_be_is_refused(store: LayoutStore, name: str, reason: str, fault: str) -> None:
    with pytest.raises(BadReference, match=fault):
        promote(store, "1.0.0", name, reason=reason)


def test_an_incomplete_version_is_not_promoted(store: LayoutStore, digests: dict[str, str]) -> None:
    blob = manifest.parse_version(store.manifest(digests["1.0.0"])).blobs[-1].digest
    store._blob_path(blob).unlink()
    with pytest.raises(NotFound, match=blob):
        promote(store, "1.0.0")
    assert tags.channels(store.tags()) == []


def test_a_channel_moved_behind_its_history_is_refused(store: LayoutStore, digests: dict[str, str]) -> None:
    promote(store, "1.0.0")
    store.move_tags({"prod": store.resolve("2.0.0")}, expect={})
    with pytest.raises(Refused, match="no history entry records a move to it") as caught:
        channel.resolve(store, "prod")
    assert "promote" in caught.value.hint
    promote(store, "2.0.0")
    assert channel.resolve(store, "prod") == Resolution(digests["2.0.0"], "2.0.0", 2)


@pytest.mark.usefixtures("digests")
def test_a_history_tag_of_another_manifest_is_corrupt(store: LayoutStore) -> None:
    promote(store, "1.0.0")
    promote(store, "2.0.0")
    for target in (put_manifest(store, "other"), store.resolve("1.0.0"), store.resolve("_h.prod.000001")):
        store.move_tags({"_h.prod.000002": target}, expect={})
        with pytest.raises(Corrupt, match=r"_h\.prod\.000002"):
            channel.history(store, "prod")


def test_promotions_of_several_processes_are_all_recorded_in_the_history(store: LayoutStore, digests: dict[str, str]) -> None:
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        promotions = [move for moves in pool.map(_promote_often, [store] * PROCESSES, range(PROCESSES)) for move in moves]
    moves = channel.history(store, "prod")
    assert [move.revision for move in moves] == list(range(1, PROCESSES * MOVES + 1))
    assert sorted(promotions, key=lambda move: move.revision) == moves
    assert [move.from_digest for move in moves] == [None, *(move.to_digest for move in moves[:-1])]
    assert channel.resolve(store, "prod") == Resolution(digests[moves[-1].to_version], moves[-1].to_version, len(moves))


def _promote_often(store: LayoutStore, process: int) -> list[ChannelMove]:
    versions = ("1.0.0", "2.0.0")
    return [
        channel.promote(store, "prod", versions[(process + at) % 2], MoveRequest(f"op{process}", f"{at}", NOW))
        for at in range(MOVES)
    ]


channel_names = st.from_regex(r"[a-z0-9][a-z0-9.]{0,12}", fullmatch=True)


@given(channel_names, st.integers(1, 10**7), channel_names)
def test_history_tags_of_different_channels_are_distinguished(name: str, revision: int, other: str) -> None:
    tag = tags.history_tag(name, revision)
    assert tags.revisions([tag], name) == [revision]
    assert tags.channels([tag]) == [name]
    assert tags.versions([tag, name, "1.0.0"]) == sorted({"1.0.0"} - {name})
    if other != name:
        assert tags.revisions([tag], other) == []


class FailingTags(LayoutStore):
    """A store that raises `error`, if it is set, when its tags are listed."""

    error: RegistryError | None = None

    def tags(self) -> list[str]:
        if self.error is not None:
            raise self.error
        return super().tags()


def test_moves_are_observed_in_order_during_outages_and_before_the_channel_exists(
    store: LayoutStore, make_package: MakePackage
) -> None:
    push_versions(store, make_package, "1.0.0", "2.0.0")
    observed_store = FailingTags(store._path)
    failures: list[RegistryError | None] = []
    rounds = iter(range(100))

    def pause(error: RegistryError | None) -> None:
        failures.append(error)
        step = next(rounds)
        observed_store.error = Unreachable("down") if step == 1 else None
        if step in (1, 3):  # twice during the outage, then once more
            for version in ("1.0.0", "2.0.0"):
                promote(store, version)

    observed = list(islice(channel.watch(observed_store, "prod", 0, pause), 4))
    assert [move.revision for move in observed] == [1, 2, 3, 4]
    assert [str(error) for error in failures if error] == ["down"]
    observed_store.error = Corrupt("broken")
    with pytest.raises(Corrupt):
        next(channel.watch(observed_store, "prod", 0, pause))


def test_every_move_of_a_channel_repeats_the_id_of_its_history(store: LayoutStore, digests: dict[str, str]) -> None:
    first, second = promote(store, "1.0.0"), promote(store, "2.0.0")
    restored = channel.rollback(store, "prod", MoveRequest("op", "", NOW))
    assert first.history is not None
    assert {move.history for move in channel.history(store, "prod")} == {first.history}
    assert {second.history, restored.history, channel.resolve(store, "prod").history} == {first.history}
    assert promote(store, "1.0.0", "canary").history != first.history
    assert channel.resolve(store, digests["1.0.0"]).history == ""


@pytest.mark.usefixtures("digests")
def test_a_move_after_entries_without_an_id_continues_the_history_that_has_one(store: LayoutStore) -> None:
    """A release without ids moved the channel before and after this release."""
    roles_index.promote(store, (roles.CHAMPION, "1.0.0", 100))
    assert channel.resolve(store, "prod").history == ""
    moved = promote(store, "2.0.0")
    assert moved.history is not None
    roles_index.promote(store, (roles.CHAMPION, "1.0.0", 100))
    assert promote(store, "2.0.0").history == moved.history


@pytest.mark.usefixtures("digests")
@pytest.mark.parametrize("text", ["x" * 16, "a" * 15, "a" * 5000, ""])
def test_an_id_of_another_form_is_ignored(store: LayoutStore, text: str) -> None:
    move = promote(store, "1.0.0")
    document = history.encode(replace(move, history=text), described(b"{}"), store.resolve("1.0.0"))
    assert history.decode(document, "prod", 1, "the entry").history is None
