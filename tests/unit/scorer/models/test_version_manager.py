"""A tag of a real registry folder is followed, with models that only record their loads and closes."""

import contextlib
import json
import math
import shutil
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from model_registry import package
from model_registry.channels import channel
from model_registry.channels.move_request import MoveRequest
from model_registry.errors import RegistryError, Unreachable
from model_registry.oci import tags
from model_registry.package import Package
from model_registry.signing import keys, signatures
from model_registry.signing.keys import PrivateKey
from model_registry.stores.oci_layout import LayoutStore
from publisher.errors import Fatal
from publisher.runtime.dependency_wait import DISK, MODEL, MODEL_REGISTRY, MODEL_SERVERS, DependencyUnavailable, Outages
from scorer.backends.base import ModelRefused
from scorer.models import channel_follower as tag_module
from scorer.models.load_guard import Superseded
from scorer.models.version_manager import VersionManager, VersionRefusal
from tests.support import models
from tests.support.waiting import STEP_SECONDS, until
from tests.unit.scorer.minimal import minimal

NOW = datetime(2013, 9, 1, 6, 0, tzinfo=UTC)
VERSIONS = ("1.0.0", "2.0.0", "3.0.0")


class Guard:
    """A guard of loads.

    `endless` are versions whose trial ends only when they are no longer wanted. `deadly` are identities that are not loaded.
    """

    def __init__(self) -> None:
        self.endless: set[str] = set()
        self.deadly: set[str] = set()
        self.trying = threading.Event()
        self.loaded_identities: list[str] = []

    def refusal(self, identity: str) -> str | None:
        return "processes died" if identity in self.deadly else None

    @contextlib.contextmanager
    def loading(self, identity: str) -> Iterator[None]:
        self.loaded_identities.append(identity)
        yield

    def attempt(self, loaded_package: Package, identity: str, is_wanted: Callable[[], bool]) -> None:
        assert self.loaded_identities[-1] == identity, "a death in the trial counts too"
        if loaded_package.version in self.endless:
            self.trying.set()
            until(lambda: not is_wanted(), "a move of the channel")
            raise Superseded


class Site:
    """A registry of three versions, and the models of one process.

    `open` has the open models by version, `loads` the loaded versions in order, `fails` the error that loading a version
    raises, and `decoders` the decoders of versions that do not use the common one.
    """

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
        self.refused: list[VersionRefusal] = []
        self.key: PrivateKey | None = None
        self.guard = Guard()

    def promote(self, version: str, reason: str = "", canary: int | None = None) -> None:
        channel.promote(self.store, "prod", version, MoveRequest("op", reason, NOW, key=self.key), canary=canary)

    def load(self, loaded_package: Package) -> Any:
        self.loads.append(loaded_package.version)
        if loaded_package.version in self.fails:
            raise self.fails[loaded_package.version]
        self.open.append(loaded_package.version)
        model = SimpleNamespace(
            close=lambda: self.open.remove(loaded_package.version), signature=lambda: loaded_package.signature
        )
        return SimpleNamespace(model=model, decoder=self.decoders.get(loaded_package.version))

    @contextlib.contextmanager
    def manager(self, lethal: Callable[[str], str | None] = lambda _: None) -> Iterator[VersionManager]:
        created = VersionManager(
            self.settings, self.load, self.outages, on_refused=self.refused.append, lethal=lethal, guard=self.guard
        )
        try:
            created.start()
            yield created
        finally:
            created.close()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    created = Site(tmp_path)
    created.promote("1.0.0")
    return created


def complete_a_poll(site: Site) -> None:
    """Wait until a poll of the registry that starts after this call is complete."""
    renamed = site.registry.with_name("renamed")
    site.registry.rename(renamed)
    until(lambda: site.outages.is_unavailable(MODEL_REGISTRY), "a poll that fails")
    renamed.rename(site.registry)
    until(lambda: not site.outages.is_unavailable(MODEL_REGISTRY), "the end of the next poll")


def version(manager: VersionManager) -> tuple[str, int]:
    return manager.champion.resolution.version, manager.champion.resolution.revision


def test_a_version_is_served_once_it_is_ready_and_a_rollback_needs_no_load(site: Site) -> None:
    with site.manager() as manager:
        assert version(manager) == ("1.0.0", 1)
        site.promote("2.0.0", "better")
        until(manager.serve_aspired, "the second version")
        assert (version(manager), manager.champion.reason) == (("2.0.0", 2), "better")
        site.promote("1.0.0")
        until(manager.serve_aspired, "the way back")
        assert version(manager) == ("1.0.0", 3)
        assert site.loads == ["1.0.0", "2.0.0"]
        site.promote("3.0.0")
        until(manager.serve_aspired, "the third version")
        until(lambda: site.open == ["1.0.0", "3.0.0"], "only one idle version stays in memory")


def test_the_revision_in_the_registry_is_unknown_while_the_registry_does_not_answer(site: Site) -> None:
    site.fails["2.0.0"] = ModelRefused("wrong scores")
    with site.manager() as manager:
        site.promote("2.0.0")
        until(lambda: manager.registry_revision(60) == 2, "the revision of the refused version")
        assert version(manager) == ("1.0.0", 1)
        assert manager.registry_revision(-1) == math.inf, "no poll is so recent"
        renamed = site.registry.with_name("renamed")
        site.registry.rename(renamed)
        until(lambda: manager.registry_revision(60) == math.inf, "a poll that fails")
        renamed.rename(site.registry)
        until(lambda: manager.registry_revision(60) == 2, "the next poll")


def test_a_version_that_is_refused_changes_nothing_until_the_channel_moves(site: Site) -> None:
    site.fails["2.0.0"] = ModelRefused("wrong scores")
    with site.manager() as manager:
        site.promote("2.0.0")
        until(manager.refusals, "the refusal")
        assert not manager.serve_aspired()
        assert version(manager) == ("1.0.0", 1)
        assert site.refused == manager.refusals() == [VersionRefusal("2.0.0", "wrong scores")]
        site.fails.clear()
        site.promote("2.0.0")
        until(manager.serve_aspired, "the same version, promoted again")
        assert version(manager) == ("2.0.0", 3)


def test_the_channel_is_followed_while_a_version_is_tried_and_its_trial_ends_with_the_next_move(site: Site) -> None:
    site.guard.endless.add("2.0.0")
    with site.manager() as manager:
        site.promote("2.0.0")
        assert site.guard.trying.wait(STEP_SECONDS)
        site.promote("3.0.0")
        until(manager.serve_aspired, "the third version")
        assert (version(manager), manager.refusals()) == (("3.0.0", 3), [])
        assert site.loads == ["1.0.0", "3.0.0"]


def test_a_start_follows_the_channel_while_a_version_is_tried(site: Site) -> None:
    site.guard.endless.add("2.0.0")
    site.promote("2.0.0")

    def promote_during_the_trial() -> None:
        assert site.guard.trying.wait(STEP_SECONDS)
        site.promote("3.0.0")

    thread = threading.Thread(target=promote_during_the_trial)
    thread.start()
    with site.manager() as manager:
        assert version(manager) == ("3.0.0", 3)
    thread.join()


def test_the_end_of_a_scorer_ends_the_trial_of_a_version(site: Site) -> None:
    site.guard.endless.add("2.0.0")
    with site.manager() as manager:
        site.promote("2.0.0")
        assert site.guard.trying.wait(STEP_SECONDS)
        manager.close()
        assert "model-versions" not in {thread.name for thread in threading.enumerate()}


def test_a_version_whose_loads_killed_processes_is_refused_unless_it_was_served_last(site: Site) -> None:
    digests = {name: channel.resolve(site.store, name).digest for name in VERSIONS}
    site.guard.deadly |= {f"{digests['1.0.0']}@1", f"{digests['2.0.0']}@2"}
    with pytest.raises(DependencyUnavailable, match="processes died"), site.manager():
        pass
    site.guard.deadly.discard(f"{digests['1.0.0']}@1")
    with site.manager():
        pass
    site.guard.deadly.add(f"{digests['1.0.0']}@1")
    with site.manager() as manager:
        assert version(manager) == ("1.0.0", 1)
        site.promote("2.0.0")
        until(manager.refusals, "the refusal")
        assert manager.refusals() == [VersionRefusal("2.0.0", "processes died")]


def test_a_load_is_retried_while_a_dependency_is_unavailable(site: Site) -> None:
    site.fails["1.0.0"] = DependencyUnavailable(MODEL, "no memory")
    with pytest.raises(DependencyUnavailable), site.manager():
        pass
    site.fails.clear()
    site.fails["2.0.0"] = DependencyUnavailable(MODEL, "no memory")
    with site.manager() as manager:
        site.promote("2.0.0")
        until(lambda: site.loads.count("2.0.0") > 1, "another try")
        assert (version(manager), manager.refusals()) == (("1.0.0", 1), [])
        site.fails.clear()
        until(manager.serve_aspired, "the second version")


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("the model cache: No space left on device: /cache", "check the space left"),
        DependencyUnavailable(MODEL_SERVERS, "http://triton:8000 does not answer"),
    ],
)
def test_a_version_that_cannot_be_loaded_yet_is_reported_with_the_reason_until_it_is_loaded(
    site: Site, error: Exception
) -> None:
    site.promote("1.0.0")
    with site.manager() as manager:
        site.fails["2.0.0"] = error
        site.promote("2.0.0")
        until(lambda: manager.delays() == [VersionRefusal("2.0.0", str(error))], "the delay")
        assert manager.refusals() == []
        del site.fails["2.0.0"]
        until(lambda: "2.0.0" in site.open, "the version")
        until(lambda: manager.delays() == [], "the end of the delay")


def test_a_version_that_the_channel_no_longer_names_is_not_delayed(site: Site) -> None:
    site.promote("1.0.0")
    with site.manager() as manager:
        site.fails["2.0.0"] = Unreachable("the model cache: No space left on device: /cache", "")
        site.promote("2.0.0")
        until(manager.delays, "the delay")
        site.promote("1.0.0")
        until(lambda: manager.delays() == [], "the end of the delay")


def test_an_unavailable_registry_stops_no_scorer(site: Site) -> None:
    renamed = site.registry.with_name("renamed")
    with site.manager() as manager:
        site.registry.rename(renamed)
        until(lambda: site.outages.is_unavailable(MODEL_REGISTRY), "the outage")
        assert site.outages.summary() is None
        assert version(manager) == ("1.0.0", 1)
        renamed.rename(site.registry)
        until(lambda: not site.outages.is_unavailable(MODEL_REGISTRY), "its end")
    site.registry.rename(renamed)
    with site.manager() as manager:
        assert version(manager) == ("1.0.0", 1)


def test_model_cache_that_cannot_be_written_is_an_outage_of_the_disk(site: Site) -> None:
    with site.manager() as manager:
        versions = site.registry.with_name("cache") / "versions"
        renamed = versions.with_name("aside")
        versions.rename(renamed)
        versions.write_text("a file in place of the folder")
        site.promote("2.0.0")
        until(lambda: site.outages.is_unavailable(DISK), "the outage")
        assert not site.outages.is_unavailable(MODEL_REGISTRY)
        assert version(manager) == ("1.0.0", 1)
        versions.unlink()
        renamed.rename(versions)
        until(manager.serve_aspired, "the second version")
        until(lambda: not site.outages.is_unavailable(DISK), "its end")


@pytest.mark.parametrize(("exists", "raised"), [(True, Fatal), (False, DependencyUnavailable)])
def test_a_start_without_a_version(tmp_path: Path, exists: bool, raised: type[Exception]) -> None:
    empty = Site(tmp_path)
    if not exists:
        empty.registry.rename(tmp_path / "renamed")
    with pytest.raises(raised, match="no model version to serve") as ended, empty.manager():
        pass
    assert isinstance(ended.value, DependencyUnavailable) is not exists


def test_the_served_version_is_reloaded_into_this_process(site: Site) -> None:
    reloaded_versions: list[str] = []

    def load(loaded_package: Package) -> Any:
        reloaded_versions.append(loaded_package.version)
        return site.load(loaded_package)

    with site.manager() as manager:
        before = manager.champion
        manager.reload(load)
        until(lambda: manager.champion is not before, "the model")
        assert (reloaded_versions, version(manager)) == (["1.0.0"], ("1.0.0", 1))


def test_a_channel_that_returns_to_a_version_is_followed_to_its_newest_revision(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tag names the same version as before, and a registry over HTTP returns only the tag."""
    monkeypatch.setattr(LayoutStore, "validator", lambda *_: "the same")
    monkeypatch.setattr(tag_module, "RESOLVE_SECONDS", 0.0)
    with site.manager() as manager:
        site.promote("2.0.0")
        site.promote("1.0.0")
        until(lambda: manager.serve_aspired() and version(manager) == ("1.0.0", 3), "the third revision")


def test_each_change_of_a_canary_has_a_revision_which_its_records_name(site: Site) -> None:
    with site.manager() as manager:
        before = manager.canary
        assert before is None
        for revision, percent in ((2, 5), (3, 25)):
            site.promote("2.0.0", canary=percent)
            until(manager.serve_aspired, "the canary")
            canary = manager.canary
            assert canary is not None
            assert canary.servable is not None
            assert (version(manager), canary.percent, canary.split.below) == (("1.0.0", revision), percent, 100 * percent)
            for servable, role in ((manager.champion, "champion"), (canary.servable, "canary")):
                encoder = servable.encoder
                assert (encoder.provenance["role"], encoder.provenance["arm"], encoder.revision) == (role, role, revision)
            fallback_encoder = manager.champion.in_place_of_canary("breaker").encoder
            assert (fallback_encoder.provenance["role"], fallback_encoder.provenance["arm"], fallback_encoder.revision) == (
                "champion",
                "canary",
                revision,
            )
        channel.rollback(site.store, "prod", MoveRequest("op", "", NOW))
        until(manager.serve_aspired, "the end of the canary")
        assert (version(manager), manager.canary, list(manager.serving)) == (("1.0.0", 4), None, ["champion"])
        site.promote("2.0.0")
        until(manager.serve_aspired, "the candidate as the champion")
        assert manager.champion.encoder.provenance["role"] == "champion"
        assert site.loads == ["1.0.0", "2.0.0"]


def test_a_candidate_with_the_same_decoding_as_the_champion_is_recognized(site: Site) -> None:
    reversed_signature = models.LINEAR | {"inputs": [{"tensor": "x", "dtype": "float32", "fields": ["b", "a"]}]}
    package.push(
        site.store,
        models.package(site.registry.parent / "turned", partial(models.linear, factor=2.0), reversed_signature),
        "m",
        "4.0.0",
    )
    site.decoders["3.0.0"] = object()
    with site.manager() as manager:
        for candidate, alike in (("2.0.0", True), ("3.0.0", False), ("4.0.0", False)):
            site.promote(candidate, canary=5)
            until(manager.serve_aspired, "the canary")
            assert manager.canary
            assert manager.canary.alike is alike, candidate


def test_a_refused_candidate_is_left_out_and_the_champion_answers_its_share_in_running_and_started_scorers(site: Site) -> None:
    site.fails["2.0.0"] = ModelRefused("wrong scores")
    with site.manager() as running:
        site.promote("2.0.0", canary=5)
        until(running.serve_aspired, "the revision with the champion alone")
        with site.manager() as started:
            for manager in (running, started):
                assert (version(manager), list(manager.serving)) == (("1.0.0", 2), ["champion"])
                assert manager.canary
                assert manager.canary.servable is None, "the champion answers its keys, which remain assigned to the canary"
                assert manager.refusals() == [VersionRefusal("2.0.0", "wrong scores")]
                assert manager.refuses_channel
                assert not manager.serve_aspired(), "no action remains"
    site.fails.clear()
    with site.manager(lambda identity: "it kills" if identity.endswith("@2") else None) as manager:
        assert manager.refusals() == [VersionRefusal("2.0.0", "it kills")]
        site.promote("2.0.0", canary=5)
        until(manager.serve_aspired, "the candidate, promoted again")
        assert (version(manager), list(manager.serving)) == (("1.0.0", 3), ["champion", "canary"])


def test_a_scorer_that_starts_behind_refused_champions_keeps_the_good_champion_of_a_refused_candidate(
    site: Site,
) -> None:
    site.fails["2.0.0"] = site.fails["3.0.0"] = ModelRefused("wrong scores")
    site.promote("2.0.0", canary=50)
    site.promote("2.0.0")
    site.promote("3.0.0")
    with site.manager() as manager:
        complete_a_poll(site)
        assert not manager.serve_aspired()
        assert (version(manager), list(manager.serving), manager.refuses_channel) == (("1.0.0", 2), ["champion"], True)


def test_a_version_that_was_refused_as_candidate_is_tried_again_as_the_champion_of_a_revision_that_was_skipped(
    site: Site,
) -> None:
    site.settings = minimal(model=site.settings.model.model_dump() | {"poll_seconds": 3_600})
    site.fails["2.0.0"] = site.fails["3.0.0"] = ModelRefused("wrong scores")
    with site.manager() as manager:
        site.promote("2.0.0", canary=5)
        manager.poll_now()
        until(manager.serve_aspired, "the champion of the second revision")
        del site.fails["2.0.0"]
        site.promote("2.0.0")
        site.promote("3.0.0")
        manager.poll_now()
        until(manager.serve_aspired, "the revision between")
        until(lambda: manager.refusals() == [VersionRefusal("3.0.0", "wrong scores")], "the last revision's refusal")
        assert version(manager) == ("2.0.0", 3)


def test_a_start_serves_the_last_good_revision_of_the_history_as_a_running_scorer_does(site: Site) -> None:
    site.promote("2.0.0", "good")
    site.fails["3.0.0"] = ModelRefused("wrong scores")
    with site.manager() as running:
        site.promote("3.0.0", "bad")
        until(running.refusals, "the refusal")
        assert not running.serve_aspired()
        shutil.rmtree(site.settings.model.cache or "")
        site.refused.clear()
        with site.manager() as started:
            assert version(started) == version(running) == ("2.0.0", 2)
            assert started.champion.encoder.revision == 2
            assert started.champion.reason == "good"
            assert started.refusals() == site.refused == [VersionRefusal("3.0.0", "wrong scores")]
            assert (started.aspired_revision, started.refuses_channel) == (3, True)
            site.promote("1.0.0")
            until(started.serve_aspired, "the next good version")
            assert (version(started), started.refuses_channel) == (("1.0.0", 4), False)


def test_a_scorer_that_missed_a_good_revision_before_a_refused_one_serves_it(site: Site) -> None:
    site.fails["3.0.0"] = ModelRefused("wrong scores")
    site.settings = minimal(model=site.settings.model.model_dump() | {"poll_seconds": 3_600})
    with site.manager() as manager:
        site.promote("2.0.0")
        site.promote("3.0.0")
        manager.poll_now()
        until(manager.serve_aspired, "the good revision between")
        assert version(manager) == ("2.0.0", 2)
        assert (manager.aspired_revision, manager.refusals()) == (3, [VersionRefusal("3.0.0", "wrong scores")])


def test_a_canary_is_restored_with_its_revision(site: Site) -> None:
    site.promote("2.0.0", canary=5)
    site.fails["3.0.0"] = ModelRefused("wrong scores")
    site.promote("3.0.0")
    with site.manager() as manager:
        assert version(manager) == ("1.0.0", 2)
        assert manager.canary
        assert (manager.canary.version, manager.canary.percent) == ("2.0.0", 5)


def test_an_interrupted_move_is_not_restored(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as interrupted:
        move_tags = LayoutStore.move_tags

        def move_history_tag_only(store: LayoutStore, to: Any, *, expect: Any) -> None:
            move_tags(store, {name: at for name, at in to.items() if name != "prod"}, expect=expect)

        interrupted.setattr(LayoutStore, "move_tags", move_history_tag_only)
        with contextlib.suppress(RegistryError):
            site.promote("2.0.0")
    site.fails["3.0.0"] = ModelRefused("wrong scores")
    site.promote("3.0.0")
    with site.manager() as manager:
        assert (version(manager), manager.aspired_revision) == (("1.0.0", 1), 3)


def delete_version(site: Site, number: str) -> None:
    digest = site.store.resolve(number).digest
    (site.registry / "m" / "blobs" / "sha256" / digest.removeprefix("sha256:")).unlink()


def forge_tag(site: Site, number: str) -> None:
    site.store.move_tags({"prod": site.store.resolve(number)}, expect={})


def forget_tag(site: Site, _: str) -> None:
    index = site.registry / "m" / "index.json"
    document = json.loads(index.read_text())
    name = "org.opencontainers.image.ref.name"
    document["manifests"] = [entry for entry in document["manifests"] if entry.get("annotations", {}).get(name) != "prod"]
    index.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [(delete_version, "sha256:"), (forge_tag, "no history entry records a move"), (forget_tag, "prod")],
)
@pytest.mark.parametrize("cached", [True, False])
def test_a_channel_whose_state_is_damaged_is_refused_and_the_last_good_one_is_served(
    site: Site, damage: Callable[[Site, str], None], reason: str, cached: bool
) -> None:
    with site.manager():
        pass
    if damage is delete_version:
        site.promote("2.0.0")
    damage(site, "2.0.0")
    if not cached:
        shutil.rmtree(site.settings.model.cache or "")
    with site.manager() as manager:
        assert version(manager) == ("1.0.0", 1)
        assert manager.refuses_channel
        assert reason in manager.refusals()[-1].reason
        assert site.refused


def deny(site: Site, folder: Path) -> str:
    digest = site.store.resolve("2.0.0").digest
    (folder / "policy.yaml").write_text(f"signatures: optional\ndenied: ['{digest}']\n")
    return "is denied by the policy"


def require_signatures(site: Site, folder: Path) -> str:
    keys.generate(folder / "release", None)
    (folder / "policy.yaml").write_text("signatures: required\nkeys: [{id: release, file: release.pub}]\n")
    signatures.sign(site.store, site.store.resolve("1.0.0").digest, keys.read_private(folder / "release.key", None), NOW)
    return "there is no signature"


def push_too_large(site: Site, folder: Path) -> str:
    (folder / "2.0.0" / "README.md").write_text("large" * 100_000)
    package.push(site.store, folder / "2.0.0", "m", "2.0.1")
    return "bytes"


def push_with_invalid_signature(site: Site, folder: Path) -> str:
    unchecked = package.read(folder / "2.0.0")
    (folder / "2.0.0" / "signature.json").write_text('{"inputs": 7}')
    package.push(site.store, unchecked, "m", "2.0.1")
    return "signature.json"


def fail_golden_example(site: Site, _: Path) -> str:
    site.fails["2.0.0"] = ModelRefused("golden example 1 must score 1")
    return "golden example 1"


@pytest.mark.parametrize("refuse", [deny, require_signatures, push_too_large, push_with_invalid_signature, fail_golden_example])
def test_a_start_serves_the_last_good_version_for_each_kind_of_refusal(
    site: Site, tmp_path: Path, refuse: Callable[[Site, Path], str]
) -> None:
    (tmp_path / "policy.yaml").write_text("signatures: optional\n")
    reason = refuse(site, tmp_path)
    model = {"policy": tmp_path / "policy.yaml", "max_bytes": 400_000}
    site.settings = minimal(model=site.settings.model.model_dump() | model)
    site.promote("2.0.1" if "2.0.1" in site.store.tags() else "2.0.0")
    with site.manager() as manager:
        assert version(manager) == ("1.0.0", 1)
        (refusal,) = manager.refusals()
        assert reason in refusal.reason
        assert manager.refuses_channel


def test_a_served_version_that_was_denied_later_is_no_fallback(site: Site, tmp_path: Path) -> None:
    site.promote("2.0.0")
    with site.manager():
        pass
    deny(site, tmp_path)
    site.settings = minimal(model=site.settings.model.model_dump() | {"policy": tmp_path / "policy.yaml"})
    site.fails["3.0.0"] = ModelRefused("wrong scores")
    site.promote("3.0.0")
    with site.manager() as manager:
        assert version(manager) == ("1.0.0", 1)


def test_a_scorer_without_a_valid_version_waits_and_serves_the_first_valid_one(site: Site) -> None:
    site.fails["1.0.0"] = ModelRefused("wrong scores")
    created = VersionManager(site.settings, site.load, site.outages, on_refused=site.refused.append)
    with contextlib.closing(created):
        for _ in range(3):
            with pytest.raises(DependencyUnavailable, match=r"no model version to serve: 1\.0\.0: wrong scores"):
                created.start()
        assert (site.loads, site.refused) == (["1.0.0"], [VersionRefusal("1.0.0", "wrong scores")])
        site.promote("2.0.0")
        created.start()
        assert version(created) == ("2.0.0", 2)


def test_while_no_version_is_served_a_refused_version_is_retried_at_intervals(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tag_module, "RESOLVE_SECONDS", 0.0)
    site.fails["1.0.0"] = ModelRefused("not signed")
    created = VersionManager(site.settings, site.load, site.outages)
    with contextlib.closing(created):
        with pytest.raises(DependencyUnavailable, match="not signed"):
            created.start()
        site.fails.clear()
        created.start()
        assert version(created) == ("1.0.0", 1)


def signed_site(tmp_path: Path) -> Site:
    """Return a site whose policy accepts moves signed by `moves`, and whose channel is at revision 1."""
    site = Site(tmp_path)
    keys.generate(tmp_path / "moves", None)
    (tmp_path / "policy.yaml").write_text("signatures: optional\nmoves: signed\nkeys: [{id: ops, file: moves.pub}]\n")
    site.settings = minimal(model=site.settings.model.model_dump() | {"policy": tmp_path / "policy.yaml"})
    site.key = keys.read_private(tmp_path / "moves.key", None)
    site.promote("1.0.0")
    return site


def test_a_tag_that_changes_without_a_move_has_no_effect_on_a_running_scorer(site: Site) -> None:
    with site.manager() as manager:
        site.promote("2.0.0")
        until(manager.serve_aspired, "the second version")
        forge_tag(site, "3.0.0")
        until(manager.refusals, "the refusal")
        assert "no history entry records a move" in manager.refusals()[0].reason
        assert not manager.serve_aspired()
        until(lambda: site.refused, "the report of the refusal")
        assert (version(manager), manager.refuses_channel, len(site.refused)) == (("2.0.0", 2), True, 1)
        site.promote("3.0.0")
        until(manager.serve_aspired, "the move")
        assert (version(manager), manager.refuses_channel) == (("3.0.0", 3), False)


def test_an_unsigned_move_has_no_effect_on_running_and_started_scorers(tmp_path: Path) -> None:
    site = signed_site(tmp_path)
    site.promote("2.0.0")
    with site.manager() as running:
        site.key, key = None, site.key
        site.promote("1.0.0")
        until(running.refusals, "the refusal")
        assert not running.serve_aspired()
        (refusal,) = running.refusals()
        assert refusal.version == "1.0.0"
        assert "revision 3) is not signed by a trusted key: its history entry has no signature" in refusal.reason
        assert (version(running), running.aspired_revision, running.refuses_channel) == (("2.0.0", 2), 3, True)
        shutil.rmtree(site.settings.model.cache or "")
        with site.manager() as started:
            assert version(started) == ("2.0.0", 2)
        assert site.refused == [refusal, refusal]
        site.key = key
        site.promote("1.0.0")
        until(running.serve_aspired, "the signed move")
        assert (version(running), running.refuses_channel) == (("1.0.0", 4), False)


def test_an_earlier_state_that_is_restored_without_a_move_is_refused(tmp_path: Path) -> None:
    site = signed_site(tmp_path)
    site.promote("2.0.0")
    with site.manager() as manager:
        assert version(manager) == ("2.0.0", 2)
        tag = tags.history_tag("prod", 2)
        entry = site.store.resolve(tag).digest
        site.store.move_tags({"prod": site.store.resolve("1.0.0")}, expect={})
        site.store.delete(
            [entry], expect={name: site.store.resolve(name).digest for name in site.store.tags()}, grace_seconds=0
        )
        until(manager.refusals, "the refusal")
        assert "is at revision 1, but was at revision 2" in manager.refusals()[0].reason
        assert not manager.serve_aspired()
    with site.manager() as manager:
        assert version(manager) == ("2.0.0", 2), "the highest accepted revision is kept in the cache"
        assert "was at revision 2" in manager.refusals()[0].reason
