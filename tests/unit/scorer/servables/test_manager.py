"""Following a tag of a real registry folder, with models that only note what becomes of them."""

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from model_registry import package
from model_registry.channels import channel
from model_registry.package import Package
from model_registry.stores.layout import LayoutStore
from publisher.errors import Fatal
from publisher.process.outages import MODEL, MODEL_REGISTRY, Away, Outages
from scorer.backends import ModelRefused
from scorer.servables import tag as tag_module
from scorer.servables.manager import Refusal, VersionManager
from tests.support import models
from tests.support.waiting import until
from tests.unit.scorer.minimal import minimal

NOW = datetime(2013, 9, 1, 6, 0, tzinfo=UTC)
VERSIONS = ("1.0.0", "2.0.0", "3.0.0")


class Site:
    """A registry of three versions, and the models of one process: `open` ones by version, `loads` in their order, `fails` by
    version what loading raises, `decoders` what decodes for it, where that is not a decoder like all others."""

    def __init__(self, folder: Path) -> None:
        self.registry = folder / "registry"
        self.store = LayoutStore(self.registry / "m")
        for number, version in enumerate(VERSIONS, start=2):
            package.push(self.store, models.linear_package(folder / version, float(number)), "m", version)
        model = {"source": f"oci:{self.registry}/m", "cache": folder / "cache", "poll_seconds": 0.1}
        self.settings = minimal(model=model)
        self.open: list[str] = []
        self.loads: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.decoders: dict[str, object] = {}
        self.outages = Outages()
        self.refused: list[Refusal] = []

    def promote(self, version: str, reason: str = "", canary: int | None = None) -> None:
        channel.promote(self.store, "prod", version, actor="op", reason=reason, now=NOW, canary=canary)

    def load(self, found: Package) -> Any:
        self.loads.append(found.version)
        if found.version in self.fails:
            raise self.fails[found.version]
        self.open.append(found.version)
        model = SimpleNamespace(close=lambda: self.open.remove(found.version), signature=lambda: found.signature)
        return SimpleNamespace(model=model, decoder=self.decoders.get(found.version))

    @contextlib.contextmanager
    def manager(self, lethal: Callable[[str], str | None] = lambda _: None) -> Iterator[VersionManager]:
        made = VersionManager(self.settings, self.load, self.outages, on_refused=self.refused.append, lethal=lethal)
        try:
            made.start()
            yield made
        finally:
            made.close()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    made.promote("1.0.0")
    return made


def version(manager: VersionManager) -> tuple[str, int]:
    return manager.champion.resolution.version, manager.champion.resolution.revision


def test_a_version_is_served_once_it_is_ready_and_a_way_back_needs_no_load(site: Site) -> None:
    with site.manager() as manager:
        assert version(manager) == ("1.0.0", 1)
        site.promote("2.0.0", "better")
        until(manager.flip, "the second version")
        assert (version(manager), manager.champion.reason) == (("2.0.0", 2), "better")
        site.promote("1.0.0")
        until(manager.flip, "the way back")
        assert version(manager) == ("1.0.0", 3)
        assert site.loads == ["1.0.0", "2.0.0"]
        site.promote("3.0.0")
        until(manager.flip, "the third version")
        until(lambda: site.open == ["1.0.0", "3.0.0"], "one idle version alone stays in memory")


def test_a_version_that_is_refused_changes_nothing_until_the_channel_moves(site: Site) -> None:
    site.fails["2.0.0"] = ModelRefused("wrong scores")
    with site.manager() as manager:
        site.promote("2.0.0")
        until(manager.refusals, "the refusal")
        assert not manager.flip()
        assert version(manager) == ("1.0.0", 1)
        assert site.refused == manager.refusals() == [Refusal("2.0.0", "wrong scores")]
        site.fails.clear()
        site.promote("2.0.0")
        until(manager.flip, "the same version, promoted again")
        assert version(manager) == ("2.0.0", 3)


def test_what_a_load_needs_may_be_away(site: Site) -> None:
    site.fails["1.0.0"] = Away(MODEL, "no memory")
    with pytest.raises(Away), site.manager():
        pass
    site.fails.clear()
    site.fails["2.0.0"] = Away(MODEL, "no memory")
    with site.manager() as manager:
        site.promote("2.0.0")
        until(lambda: site.loads.count("2.0.0") > 1, "another try")
        assert (version(manager), manager.refusals()) == (("1.0.0", 1), [])
        site.fails.clear()
        until(manager.flip, "the second version")


def test_a_registry_that_is_away_stops_nobody(site: Site) -> None:
    away = site.registry.with_name("away")
    with site.manager() as manager:
        site.registry.rename(away)
        until(lambda: site.outages.is_away(MODEL_REGISTRY), "the outage")
        assert site.outages.told() is None
        assert version(manager) == ("1.0.0", 1)
        away.rename(site.registry)
        until(lambda: not site.outages.is_away(MODEL_REGISTRY), "its end")
    site.registry.rename(away)
    with site.manager() as manager:
        assert version(manager) == ("1.0.0", 1)


@pytest.mark.parametrize(("there", "raised"), [(True, Fatal), (False, Away)])
def test_a_start_without_a_version(tmp_path: Path, there: bool, raised: type[Exception]) -> None:
    empty = Site(tmp_path)
    if not there:
        empty.registry.rename(tmp_path / "away")
    with pytest.raises(raised, match="no model version to serve") as ended, empty.manager():
        pass
    assert isinstance(ended.value, Away) is not there


def test_every_version_refused_is_no_start(site: Site) -> None:
    site.fails["1.0.0"] = ModelRefused("wrong scores")
    with pytest.raises(Fatal, match=r"1\.0\.0: wrong scores"), site.manager():
        pass


def test_what_is_served_moves_into_this_process(site: Site) -> None:
    moved: list[str] = []

    def load(found: Package) -> Any:
        moved.append(found.version)
        return site.load(found)

    with site.manager() as manager:
        before = manager.champion
        manager.move(load)
        until(lambda: manager.champion is not before, "the model")
        assert (moved, version(manager)) == (["1.0.0"], ("1.0.0", 1))


def test_a_channel_that_went_and_came_back_is_followed_to_its_newest_revision(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tag names what it did, and a registry over HTTP tells no more of it."""
    monkeypatch.setattr(LayoutStore, "validator", lambda *_: "the same")
    monkeypatch.setattr(tag_module, "LOOK_SECONDS", 0.0)
    with site.manager() as manager:
        site.promote("2.0.0")
        site.promote("1.0.0")
        until(lambda: manager.flip() and version(manager) == ("1.0.0", 3), "the third revision")


def test_a_canary_begins_grows_and_ends_each_with_a_revision_and_its_records_say_so(site: Site) -> None:
    with site.manager() as manager:
        before = manager.canary
        assert before is None
        for revision, percent in ((2, 5), (3, 25)):
            site.promote("2.0.0", canary=percent)
            until(manager.flip, "the canary")
            canary = manager.canary
            assert canary is not None
            assert canary.servable is not None
            assert (version(manager), canary.percent, canary.split.below) == (("1.0.0", revision), percent, 100 * percent)
            for servable, role in ((manager.champion, "champion"), (canary.servable, "canary")):
                encoder = servable.encoder
                assert (encoder.provenance["role"], encoder.provenance["arm"], encoder.revision) == (role, role, revision)
            stand_in = manager.champion.instead_of_canary("breaker").encoder
            assert (stand_in.provenance["role"], stand_in.provenance["arm"], stand_in.revision) == (
                "champion",
                "canary",
                revision,
            )
        channel.rollback(site.store, "prod", actor="op", reason="", now=NOW)
        until(manager.flip, "the end of the canary")
        assert (version(manager), manager.canary, list(manager.serving)) == (("1.0.0", 4), None, ["champion"])
        site.promote("2.0.0")
        until(manager.flip, "the candidate as the champion")
        assert manager.champion.encoder.provenance["role"] == "champion"
        assert site.loads == ["1.0.0", "2.0.0"]


def test_a_candidate_reads_events_as_the_champion_does_or_not(site: Site) -> None:
    turned = models.LINEAR | {"inputs": [{"tensor": "x", "dtype": "float32", "fields": ["b", "a"]}]}
    package.push(
        site.store, models.package(site.registry.parent / "turned", partial(models.linear, factor=2.0), turned), "m", "4.0.0"
    )
    site.decoders["3.0.0"] = object()
    with site.manager() as manager:
        for candidate, alike in (("2.0.0", True), ("3.0.0", False), ("4.0.0", False)):
            site.promote(candidate, canary=5)
            until(manager.flip, "the canary")
            assert manager.canary
            assert manager.canary.alike is alike, candidate


def test_a_refused_candidate_refuses_the_revision_while_scorers_run_and_stops_no_start(site: Site) -> None:
    site.fails["2.0.0"] = ModelRefused("wrong scores")
    with site.manager() as manager:
        site.promote("2.0.0", canary=5)
        until(manager.refusals, "the refusal")
        assert not manager.flip()
        assert (version(manager), manager.canary) == (("1.0.0", 1), None)
    with site.manager() as again:
        manager = again
        assert version(manager) == ("1.0.0", 2)
        assert manager.canary
        assert manager.canary.servable is None, "its keys are the champion's to answer, and still its own"
        assert manager.refusals() == [Refusal("2.0.0", "wrong scores")]
    site.fails.clear()
    with site.manager(lambda identity: "it kills" if identity.endswith("@2") else None) as manager:
        assert manager.refusals() == [Refusal("2.0.0", "it kills")]
        site.promote("2.0.0", canary=5)
        until(manager.flip, "the candidate, promoted again")
        assert (version(manager), list(manager.serving)) == (("1.0.0", 3), ["champion", "canary"])
