"""Versions tried in a real trial process: a version that harms the process is refused with the reason."""

import contextlib
import threading
from collections.abc import Callable
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import psutil
import pytest

from model_registry import package
from model_registry.memory_limits import Memory
from model_registry.package import Package
from scorer.backends.base import ModelRefused
from scorer.crash_isolation import trial_load
from scorer.crash_isolation.in_flight_journal import InFlightJournal
from scorer.crash_isolation.trial_load import TrialLoads, share_of
from scorer.models.load_guard import ACCEPTED, DIED, REFUSED, SUPERSEDED, TOO_LONG, Superseded
from scorer.settings import Settings
from tests.support import batch_models, hostile_models, models
from tests.support.waiting import STEP_SECONDS
from tests.unit.model_registry.onnx_tools.test_run_golden_examples import alone_and_tolerant
from tests.unit.scorer.minimal import minimal

MEBIBYTE = 1 << 20
DIGEST = f"sha256:{'a':0>64}"


class Site:
    """One scorer's cache, and the outcomes of its trials."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = InFlightJournal(folder / "note")
        self.outcomes: list[str] = []

    def settings(self, **model: Any) -> Settings:
        return minimal(model={"cache": self.folder / "cache", **model}, batching={"max_events": 8})

    def trials(self, **model: Any) -> TrialLoads:
        return TrialLoads(self.settings(**model), self.journal, 1, self.outcomes.append)

    def package(self, build: Callable[[Path], None] | None = None) -> Package:
        folder = self.folder / "package"
        if not folder.exists():
            if build is None:
                models.linear_package(folder, 2.0)
            else:
                hostile_models.package(folder, build)
        return package.read(folder, name="m", version="1.0.0", digest=DIGEST)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_version_with_joined_fields_is_tried_without_rows(site: Site) -> None:
    folder = models.joined_package(site.folder / "package", 2.0)
    joined = package.read(folder, name="m", version="1.0.0", digest=DIGEST)
    configured = minimal(
        model={"cache": site.folder / "cache"}, batching={"max_events": 8}, tables={"customers": {"topic": "c"}}
    )
    TrialLoads(configured, site.journal, 1, site.outcomes.append).attempt(joined, "", always_wanted)
    with pytest.raises(
        ModelRefused, match=r"joined from the table customers, which the configuration lacks; add tables.customers"
    ):
        TrialLoads(site.settings(), site.journal, 1, site.outcomes.append, remember=False).attempt(joined, "", always_wanted)
    assert site.outcomes == [ACCEPTED, REFUSED]


def always_wanted() -> bool:
    return True


def test_an_accepted_version_is_tried_again_in_another_environment_or_after_a_death(site: Site) -> None:
    site.trials().attempt(site.package(), "v@1", always_wanted)
    site.trials().attempt(site.package(), "v@2", always_wanted)
    assert site.outcomes == [ACCEPTED]
    site.trials(deadline_ms=700).attempt(site.package(), "v@2", always_wanted)
    assert site.outcomes == [ACCEPTED] * 2
    site.journal.write_loads("v@2", {})
    site.trials(deadline_ms=700).attempt(site.package(), "v@2", always_wanted)
    assert site.outcomes == [ACCEPTED] * 3


def test_a_version_that_kills_its_process_is_refused_with_the_signal_and_the_limits(site: Site) -> None:
    limited = site.trials(load_bytes=500 * MEBIBYTE, load_seconds=60)
    with pytest.raises(ModelRefused, match=r"was ended by SIGSEGV after .* 500 MiB of memory \(model.load_bytes\) and 60 s"):
        limited.attempt(site.package(hostile_models.deep_tree), "v@1", always_wanted)
    assert site.outcomes == [DIED]


def test_a_version_whose_scores_depend_on_the_batch_is_refused_with_the_difference_and_the_remedy(site: Site) -> None:
    folder = site.folder / "package"
    folder.mkdir()
    batch_models.centred(folder / "model.onnx")
    batch_models.complete(folder, batch_models.FOUR, [batch_models.GOLDEN | {"score": 0.0}])
    with pytest.raises(ModelRefused, match=r"a score depends on its batch: .*the largest difference is .*\"batch\": false"):
        site.trials().attempt(site.package(), "v@1", always_wanted)
    assert site.outcomes == [REFUSED]


def test_golden_examples_are_compared_alone_where_scores_may_depend_on_their_batch(site: Site) -> None:
    folder = site.folder / "package"
    folder.mkdir()
    alone_and_tolerant(folder)
    site.trials().attempt(site.package(), "v@1", always_wanted)
    assert site.outcomes == [ACCEPTED]


@pytest.mark.parametrize("build", [hostile_models.expanding, hostile_models.folded])
def test_a_version_that_exceeds_the_memory_limit_is_refused_with_the_limit(site: Site, build: Callable[[Path], None]) -> None:
    with pytest.raises(ModelRefused, match=r"memory limit of 500 MiB \(model.load_bytes\): .*lloc"):
        site.trials(load_bytes=500 * MEBIBYTE).attempt(site.package(build), "v@1", always_wanted)
    assert site.outcomes == [REFUSED]


def test_a_version_that_is_never_ready_is_refused_and_not_tried_again_until_it_is_promoted_again(site: Site) -> None:
    for remark in ("", "not loaded again"):
        with pytest.raises(ModelRefused, match=rf"did not finish loading the version within 3 s.*{remark}"):
            site.trials(load_seconds=3).attempt(site.package(hostile_models.endless), "v@1", always_wanted)
        assert site.outcomes == [TOO_LONG]
    with pytest.raises(ModelRefused):
        site.trials(load_seconds=3).attempt(site.package(), "v@2", always_wanted)
    assert site.outcomes == [TOO_LONG] * 2


def test_a_trial_ends_as_soon_as_its_version_is_no_longer_wanted(site: Site) -> None:
    was_checked = threading.Event()

    def is_wanted_once() -> bool:
        is_first_check = not was_checked.is_set()
        was_checked.set()
        return is_first_check

    with pytest.raises(Superseded):
        site.trials().attempt(site.package(hostile_models.endless), "v@1", is_wanted_once)
    assert site.outcomes in ([], [SUPERSEDED]), "the check may precede the start of the trial"


@pytest.mark.parametrize(
    ("build", "is_superseded", "outcome"),
    [
        (None, False, ACCEPTED),
        (hostile_models.deep_tree, False, DIED),
        (hostile_models.endless, True, SUPERSEDED),
    ],
    ids=["accepted", "died", "superseded"],
)
def test_no_process_of_a_trial_runs_after_the_trial(
    site: Site, build: Callable[[Path], None] | None, is_superseded: bool, outcome: str
) -> None:
    resource_tracker.ensure_running()  # it starts with the first child, and runs until the tests end
    before = set(psutil.Process().children())
    during: set[psutil.Process] = set()

    def is_wanted() -> bool:
        during.update(psutil.Process().children())
        return not is_superseded

    with contextlib.suppress(ModelRefused, Superseded):
        site.trials().attempt(site.package(build), "v@1", is_wanted)
    assert site.outcomes == [outcome]
    assert len(during - before) == 1
    assert set(psutil.Process().children()) <= before


def test_a_trial_waits_for_another_process_with_the_same_version_and_uses_its_outcome(site: Site) -> None:
    package, first_trials, second_trials = site.package(), site.trials(), site.trials()
    second_is_waiting = threading.Event()

    def second_is_wanted() -> bool:
        second_is_waiting.set()
        return True

    def first_is_wanted() -> bool:
        if not second_thread.ident:
            second_thread.start()
            assert second_is_waiting.wait(STEP_SECONDS), "the second process waits"
        return True

    second_thread = threading.Thread(target=second_trials.attempt, args=(package, "v@1", second_is_wanted))
    first_trials.attempt(package, "v@1", first_is_wanted)
    second_thread.join()
    assert site.outcomes == [ACCEPTED]


def test_a_cache_that_cannot_be_written_keeps_no_outcome(site: Site) -> None:
    (site.folder / "cache").mkdir()
    (site.folder / "cache" / "trials").write_text("no folder")
    for _ in range(2):
        site.trials().attempt(site.package(), "v@1", always_wanted)
    assert site.outcomes == [ACCEPTED] * 2


def test_a_worker_has_its_share_of_the_free_memory_and_at_least_the_minimum() -> None:
    gibibyte = 1 << 30
    container = Memory(limit=10 * gibibyte, used=2 * gibibyte)
    assert share_of(container, 1) == container.free - gibibyte // 2 - trial_load.INTERPRETER_BYTES
    assert share_of(container, 4) == share_of(container, 1) // 4
    assert share_of(Memory(gibibyte, gibibyte), 1) == trial_load.MIN_BYTES


def test_the_thread_of_a_trial_has_less_stack_than_the_threads_of_a_scorer() -> None:
    assert trial_load.stack_bytes(8 << 20) == trial_load.stack_bytes(-1) == 6 << 20
    assert trial_load.stack_bytes(4 << 20) == 3 << 20
