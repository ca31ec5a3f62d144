"""Channels of several versions: an index with roles and shares is written, read and rolled back, and refused if invalid."""

from collections.abc import Callable, Mapping

import pytest

from model_registry.channels import channel, roles
from model_registry.channels.channel import Resolution
from model_registry.channels.history import ChannelMove, rollback_target
from model_registry.channels.move_request import MoveRequest
from model_registry.channels.roles import Role
from model_registry.errors import BadReference, Conflict, Corrupt, NotFound, Refused, Unreachable
from model_registry.oci.manifest import Descriptor
from model_registry.stores.oci_layout import LayoutStore
from tests.conformance.store import an_index
from tests.unit.model_registry import roles_index
from tests.unit.model_registry.conftest import NOW, MakePackage, promote, push_versions

VERSIONS = ("1.0.0", "2.0.0", "3.0.0")


@pytest.fixture
def digests(store: LayoutStore, make_package: MakePackage) -> dict[str, str]:
    return push_versions(store, make_package, *VERSIONS)


def rollback(store: LayoutStore, to_revision: int | None = None) -> ChannelMove:
    return channel.rollback(store, "prod", MoveRequest("op@host", "", NOW), to_revision=to_revision)


def test_a_channel_of_roles_resolves_to_its_champion(store: LayoutStore, digests: dict[str, str]) -> None:
    first = promote(store, "1.0.0")
    move = roles_index.promote(store, ("champion", "1.0.0", 90), ("canary", "2.0.0", 10), ("shadow", "3.0.0", 0))
    expected = (
        Role("champion", "1.0.0", digests["1.0.0"], 90),
        Role("canary", "2.0.0", digests["2.0.0"], 10),
        Role("shadow", "3.0.0", digests["3.0.0"], 0),
    )
    assert (move.roles, move.champion, move.from_digest) == (expected, digests["1.0.0"], first.to_digest)
    assert channel.resolve(store, "prod") == Resolution(digests["1.0.0"], "1.0.0", 2, expected)
    assert channel.history(store, "prod") == [first, move]
    assert roles.format_roles(expected) == "champion 1.0.0 90 %, canary 2.0.0 10 %, shadow 3.0.0"


def test_a_shadow_accompanies_its_champion_until_the_next_move(store: LayoutStore, digests: dict[str, str]) -> None:
    promote(store, "1.0.0")
    move = channel.promote(store, "prod", "1.0.0", MoveRequest("op@host", "", NOW), shadow="2.0.0")
    expected = Role("champion", "1.0.0", digests["1.0.0"], 100), Role("shadow", "2.0.0", digests["2.0.0"], 0)
    assert move.roles == channel.resolve(store, "prod").roles == expected
    assert (roles.find_candidate(expected), roles.find_canary(expected)) == (expected[1], None)
    assert roles.format_roles(expected) == "champion 1.0.0 100 %, shadow 2.0.0"
    three_roles = roles_index.promote(store, ("shadow", "3.0.0", 0), ("canary", "2.0.0", 10), ("champion", "1.0.0", 90)).roles
    assert roles.find_candidate(three_roles) == roles.find_canary(three_roles) == Role("canary", "2.0.0", digests["2.0.0"], 10)
    restored = rollback(store)
    assert (restored.to_digest, restored.roles) == (digests["1.0.0"], ())
    with pytest.raises(Refused, match=r"2\.0\.0 cannot shadow itself"):
        channel.promote(store, "prod", "2.0.0", MoveRequest("", "", NOW), shadow="2.0.0")
    assert channel.resolve(store, "prod").roles == ()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda parts: parts[1:],
        lambda parts: [*parts, parts[0]],
        lambda parts: [parts[0]],
        lambda parts: [(Role("referee", r.version, r.digest, r.weight), d) for r, d in parts],
    ],
)
def test_an_index_with_invalid_roles_is_corrupt(
    store: LayoutStore, digests: dict[str, str], spoil: Callable[[list[object]], list[tuple[Role, object]]]
) -> None:
    parts: list[object] = [
        (Role(role, version, digests[version], 50), store.resolve(version))
        for role, version in (("champion", "1.0.0"), ("canary", "2.0.0"))
    ]
    pushed = store.push_manifest(roles_index.build(spoil(parts)))  # type: ignore[arg-type]
    store.move_tags({"odd": pushed}, expect={})
    with pytest.raises(Corrupt):
        channel.resolve(store, "odd")
    assert roles.parse(an_index(store.resolve("1.0.0"))) == ()  # an index without roles


def test_rollback_returns_step_by_step_and_never_to_a_rolled_back_version(store: LayoutStore, digests: dict[str, str]) -> None:
    for version in VERSIONS:
        promote(store, version)
    assert (rollback(store).to_version, rollback(store).to_version) == ("2.0.0", "1.0.0")
    with pytest.raises(Refused, match="no version before"):
        rollback(store)
    forward = rollback(store, to_revision=3)
    assert (forward.to_version, forward.revision, forward.restores) == ("3.0.0", 6, 3)
    assert channel.resolve(store, "prod") == Resolution(digests["3.0.0"], "3.0.0", 6)
    with pytest.raises(NotFound, match="no revision 9"):
        rollback(store, to_revision=9)


def test_rollback_restores_the_champion_alone_and_skips_promotions_of_the_same_version(
    store: LayoutStore, digests: dict[str, str]
) -> None:
    with pytest.raises(NotFound, match="no history"):
        rollback(store)
    promote(store, "3.0.0")
    shared = roles_index.promote(store, ("champion", "1.0.0", 90), ("canary", "2.0.0", 10))
    promote(store, "2.0.0")
    promote(store, "2.0.0")
    past = channel.history(store, "prod")
    assert rollback_target(past[:3], past[2].to_digest) == shared
    restored = rollback(store)
    assert (restored.to_digest, restored.roles, restored.restores) == (digests["1.0.0"], (), 2)
    assert rollback(store).to_version == "3.0.0"


@pytest.mark.usefixtures("digests")
def test_rollback_skips_a_move_whose_entry_was_written_and_whose_tag_was_not(store: LayoutStore) -> None:
    promote(store, "1.0.0")
    second = promote(store, "2.0.0")
    promote(store, "3.0.0")
    store.move_tags({"prod": store.resolve("2.0.0")}, expect={})
    assert channel.resolve(store, "prod") == Resolution(second.to_digest, "2.0.0", 2)
    restored = rollback(store)
    assert (restored.to_version, restored.from_version, restored.revision) == ("1.0.0", "2.0.0", 4)


def test_a_move_that_is_not_as_expected_is_refused(store: LayoutStore, digests: dict[str, str]) -> None:
    promote(store, "1.0.0", expected_digest=digests["1.0.0"], expected_revision=0)
    with pytest.raises(Refused, match="as expected"):
        promote(store, "2.0.0", expected_digest=digests["1.0.0"])
    with pytest.raises(Refused, match="is at revision 1, not 0"):
        promote(store, "2.0.0", expected_revision=0)
    promote(store, "2.0.0", expected_digest=digests["2.0.0"], expected_revision=1)


class Raced(LayoutStore):
    """A store without compare-and-swap, in which another client writes right after this one."""

    concurrent_write: Callable[[], None] = staticmethod(lambda: None)

    def move_tags(self, to: Mapping[str, Descriptor], *, expect: Mapping[str, str | None]) -> None:
        assert expect
        super().move_tags(to, expect={})
        self.concurrent_write()


def test_a_lost_race_is_a_conflict(store: LayoutStore, digests: dict[str, str]) -> None:
    promote(store, "1.0.0")
    raced = Raced(store._path)
    raced.concurrent_write = lambda: store.move_tags({"prod": store.resolve("3.0.0")}, expect={})
    with pytest.raises(Conflict, match=r"at the same time: the move to 2\.0\.0 is lost"):
        promote(raced, "2.0.0")
    raced.concurrent_write = lambda: store.move_tags({"_h.prod.000003": store.resolve("_h.prod.000001")}, expect={})
    with pytest.raises(Conflict, match="is lost"):
        promote(raced, "2.0.0")
    assert digests


@pytest.mark.usefixtures("digests")
def test_a_move_that_another_process_reverted_is_a_conflict_and_a_delayed_one_is_unreachable(store: LayoutStore) -> None:
    promote(store, "1.0.0")
    raced = Raced(store._path)
    outdated = Unreachable("the registry shows the old target")

    def move_back() -> None:
        promote(store, "1.0.0")
        raise outdated

    def replace_entry() -> None:
        store.move_tags({"_h.prod.000005": store.resolve("_h.prod.000001"), "prod": store.resolve("1.0.0")}, expect={})
        raise outdated

    def delay() -> None:
        raise outdated

    raced.concurrent_write = move_back
    with pytest.raises(Conflict, match="another process moved the channel 'prod' back"):
        promote(raced, "2.0.0")
    raced.concurrent_write = delay
    with pytest.raises(Unreachable, match="shows the old target"):
        promote(raced, "2.0.0")
    raced.concurrent_write = replace_entry
    with pytest.raises(Conflict, match="another process moved the channel 'prod' back"):
        promote(raced, "2.0.0")


def test_a_later_move_based_on_this_one_is_no_lost_race(store: LayoutStore, digests: dict[str, str]) -> None:
    raced = Raced(store._path)
    raced.concurrent_write = lambda: (promote(store, "2.0.0"), None)[1]
    assert promote(raced, "1.0.0").revision == 1
    assert channel.resolve(store, "prod") == Resolution(digests["2.0.0"], "2.0.0", 2)


def test_a_canary_is_written_raised_and_ended_by_the_next_promotion_or_rollback(
    store: LayoutStore, digests: dict[str, str]
) -> None:
    with pytest.raises(Refused, match="no champion"):
        promote(store, "2.0.0", canary=5)
    promote(store, "1.0.0")
    with pytest.raises(Refused, match="is the champion"):
        promote(store, "1.0.0", canary=5)
    for percent in (5, 25):
        move = promote(store, "2.0.0", canary=percent)
        expected = (
            Role("champion", "1.0.0", digests["1.0.0"], 100 - percent),
            Role("canary", "2.0.0", digests["2.0.0"], percent),
        )
        assert (move.to_version, move.champion, move.roles) == ("1.0.0", digests["1.0.0"], expected)
        assert channel.resolve(store, "prod").roles == expected
    with pytest.raises(Refused, match="is the champion"):
        promote(store, "1.0.0", canary=5)
    restored = rollback(store)
    assert (restored.to_digest, restored.roles, channel.resolve(store, "prod").roles) == (digests["1.0.0"], (), ())
    promote(store, "2.0.0", canary=5)
    assert promote(store, "2.0.0").roles == ()
    assert rollback(store).to_version == "1.0.0"


@pytest.mark.parametrize(("text", "expected"), [("5%", 5), ("5", 5), (" 25 % ", 25), ("99%", 99)])
def test_a_share_is_parsed_with_and_without_percent_sign(text: str, expected: int) -> None:
    assert roles.parse_percent(text) == expected


@pytest.mark.parametrize("text", ["", "%", "0", "100%", "0.5%", "-5", "5%%", "2.0.0=10", "\u0665", "9" * 5_000])
def test_an_invalid_share_is_refused(text: str) -> None:
    with pytest.raises(BadReference, match="not a valid share of a canary"):
        roles.parse_percent(text)
