"""Publication of a run in a folder: each artifact once, after interruptions and beside moves of others."""

import itertools
import multiprocessing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import pytest

from model_registry.channels import retention
from model_registry.channels.retention import RetentionRules
from model_registry.errors import BadFile, Conflict, Refused
from model_registry.oci import tags
from model_registry.oci.manifest import Descriptor
from model_registry.signing import signatures
from model_registry.signing.attestation import attest, list_attestations
from model_registry.stores.oci_layout import LayoutStore
from publisher.kafka.groups import GroupPosition
from scorer.rollout.controller.log_records import EntryKind, LogEntry, LoggedVersion, encode
from scorer.rollout.controller.rollout_state import RolloutLog
from tests.support.attested import CHAMPION, RUN, comparison, provenance
from tests.support.publishing import (
    AT,
    EVALUATED,
    KEY,
    KEYS,
    OTHER,
    VERSION,
    Killed,
    check_once,
    copied,
    folder,
    origin,
    publish,
    pushed,
    records,
    snapshot,
)
from tests.unit.model_registry.conftest import MakePackage, make_package, onnx_bytes, store
from tests.unit.model_registry.keyring import TWO
from training.publish.attest_and_sign import attest_once, sign_once
from training.publish.commit_label_offsets import ahead
from training.publish.promote import ComparedChampion, Promoted
from training.publish.push_version import origin_of, push, version_of
from training.publish.start_rollout import of_run
from training.snapshot.files import Copied, Frozen

__all__ = ["copied", "folder", "make_package", "pushed", "records", "store"]


class Dying(LayoutStore):
    """A folder whose writer dies at its nth write, before or after it."""

    def __init__(self, path: Path, at: int, *, before: bool) -> None:
        super().__init__(path)
        self._at, self._before = at, before
        self._writes = itertools.count(1)

    def push_blob(self, content: Descriptor, stream: BinaryIO) -> None:
        self._write(lambda: LayoutStore.push_blob(self, content, stream))

    def move_tags(self, to: Mapping[str, Descriptor], *, expect: Mapping[str, str | None]) -> None:
        self._write(lambda: LayoutStore.move_tags(self, to, expect=expect))

    def _write(self, write: Callable[[], None]) -> None:
        dies = next(self._writes) == self._at
        if dies and self._before:
            raise Killed
        write()
        if dies:
            raise Killed


@pytest.mark.parametrize("before", [True, False])
def test_a_run_that_is_killed_at_any_write_leaves_each_artifact_once(
    tmp_path: Path, folder: Path, records: Path, copied: Copied, before: bool
) -> None:
    for at in range(1, 200):
        place = tmp_path / str(at) / "flight-delay"
        try:
            publish(Dying(place, at, before=before), folder, records, copied)
        except Killed:
            assert isinstance(publish(LayoutStore(place), folder, records, copied), Promoted)
            check_once(LayoutStore(place))
        else:
            break
    assert at > 30
    repeated = publish(LayoutStore(place), folder, records, copied)
    assert isinstance(repeated, Promoted)
    assert repeated.from_history
    check_once(LayoutStore(place))


def test_several_processes_of_one_run_leave_each_artifact_once(
    store: LayoutStore, folder: Path, records: Path, copied: Copied
) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=publish, args=(store, folder, records, copied)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    check_once(store)


def test_a_version_is_named_by_day_and_run_and_has_its_origin(
    store: LayoutStore, folder: Path, copied: Copied, make_package: MakePackage
) -> None:
    assert VERSION == "20260701-0123456789ab"
    pushed = push(store, folder, VERSION, origin(copied))
    assert push(store, folder, VERSION, origin(copied)) == pushed
    assert origin_of(store, pushed.digest) == origin(copied)
    other = make_package("other", model=onnx_bytes(b"other"))
    with pytest.raises(Refused, match="exists with other content"):
        push(store, other, VERSION, origin(copied))
    (other / "model.onnx").write_bytes(b"noise")
    with pytest.raises(Exception, match=r"model\.onnx"):
        push(store, other, version_of(OTHER, AT), origin(copied))


def test_an_existing_attestation_is_not_repeated(store: LayoutStore, pushed: str) -> None:
    first = attest_once(store, pushed, "comparison", comparison(pushed), KEY, AT)
    assert attest_once(store, pushed, "comparison", comparison(pushed, because="in other words"), KEY, AT) == first
    newer = comparison(pushed)["champion"] | {"revision": 2}
    assert attest_once(store, pushed, "comparison", comparison(pushed, champion=newer), KEY, AT) != first
    assert attest_once(store, pushed, "comparison", comparison(pushed, run=OTHER), KEY, AT) != first
    for type_, predicate, equivalent in (
        ("slsa-provenance", provenance(), provenance(seed=8)),
        ("evaluation", EVALUATED, EVALUATED | {"metrics": {"auc": 0.9100001}}),
        ("https://example.org/x", {"a": 1}, {"a": 1}),
    ):
        attested = attest_once(store, pushed, type_, predicate, KEY, AT)
        assert attest_once(store, pushed, type_, equivalent, KEY, AT) == attested
    assert attest_once(store, pushed, "https://example.org/x", {"a": 2}, KEY, AT)
    assert len(list_attestations(store, pushed, KEYS, AT)) == 7
    with pytest.raises(BadFile, match="verdict"):
        attest_once(store, pushed, "comparison", comparison(pushed) | {"verdict": "fine"}, KEY, AT)


def test_an_attestation_of_another_key_does_not_count(store: LayoutStore, pushed: str) -> None:
    of_other_key = attest(store, pushed, "comparison", comparison(pushed), TWO, AT)
    assert attest_once(store, pushed, "comparison", comparison(pushed), KEY, AT) != of_other_key


def test_only_a_version_that_passed_in_this_run_is_signed(store: LayoutStore, pushed: str) -> None:
    attest(store, pushed, "comparison", comparison(pushed), TWO, AT)
    attest_once(store, pushed, "comparison", comparison(pushed, run=OTHER), KEY, AT)
    attest_once(store, pushed, "comparison", comparison(pushed, "refused"), KEY, AT)
    with pytest.raises(Refused, match="run 0123456789ab attested have the verdicts 'refused'"):
        sign_once(store, pushed, VERSION, RUN, KEY, AT)
    with pytest.raises(Refused, match="there is no signature"):
        signatures.verify(store, pushed, KEYS, AT)
    attest_once(store, pushed, "comparison", comparison(pushed, champion=None), KEY, AT)
    for _ in range(2):
        sign_once(store, pushed, VERSION, RUN, KEY, AT)
    assert signatures.verify(store, pushed, KEYS, AT, f"flight-delay:{VERSION}") == ["training"]
    with pytest.raises(Refused, match="not as"):
        signatures.verify(store, pushed, KEYS, AT, "flight-delay:1.0.0")


def test_pruning_of_unpromoted_versions_deletes_a_refused_challenger_with_its_artifacts(
    store: LayoutStore, folder: Path, records: Path, copied: Copied, make_package: MakePackage, tmp_path: Path
) -> None:
    publish(store, folder, records, copied)
    other_snapshot = snapshot(tmp_path / "theirs", b"theirs")
    other = make_package("other", model=onnx_bytes(b"other"))
    with pytest.raises(Refused):
        publish(store, other, tmp_path / "theirs", other_snapshot, ComparedChampion(CHAMPION, 1), OTHER, verdict="refused")
    before = {path.name for path in (store._path / "blobs" / "sha256").iterdir()}
    repository_snapshot = retention.read_repository(store)
    removal = retention.plan_removal(repository_snapshot, RetentionRules(unpromoted=True))
    assert list(removal.versions) == [version_of(OTHER, AT)]
    store.delete(retention.manifests_to_delete(store, removal), expect=repository_snapshot.tags, grace_seconds=0)
    remaining = {path.name for path in (store._path / "blobs" / "sha256").iterdir()}
    assert {file.sha256 for file in other_snapshot.files.values()} <= before - remaining
    assert {file.sha256 for file in copied.files.values()} <= remaining
    assert tags.versions(store.tags()) == [VERSION]
    check_once(store)


def frozen(*ends: int) -> Frozen:
    return Frozen(1, "c", {}, {"events": [(0, 99)]}, {"labels": [(0, end) for end in ends]})


def test_the_triggers_offsets_never_go_backwards() -> None:
    committed = (GroupPosition("labels", 0, 50, "x"), GroupPosition("labels", 1, 7), GroupPosition("other", 0, 3))
    assert ahead(frozen(10, 20, 30), committed) == (
        GroupPosition("labels", 0, 50),
        GroupPosition("labels", 1, 20),
        GroupPosition("labels", 2, 30),
    )


def test_the_rollout_of_a_run_is_known_by_version_and_reason() -> None:
    ledger = RolloutLog()
    plan = {"candidate": VERSION, "steps": [{"promote": True}]}
    for name, reasons in (("one", ["by hand"]), ("two", ["run 0123456789ab"])):
        candidate = LoggedVersion(CHAMPION, VERSION)
        started = LogEntry(
            name,
            0,
            EntryKind.STARTED,
            1,
            "me",
            why=reasons,
            plan=plan,
            champion=LoggedVersion("sha256:x", "1"),
            candidate=candidate,
        )
        ledger.apply(f"{name}/0".encode(), encode(started))
        ledger.apply(f"{name}/1".encode(), encode(LogEntry(name, 1, EntryKind.ENDED, 2, "me")))
    assert of_run(ledger, CHAMPION, RUN) == "two"
    assert of_run(ledger, CHAMPION, OTHER) is None
    assert of_run(ledger, f"sha256:{5:064x}", RUN) is None


def test_an_attestation_that_is_never_listed_is_an_error(store: LayoutStore, pushed: str) -> None:
    class Forgetful(LayoutStore):
        """A store in which others overwrite the list of referrers each time."""

        def move_tags(self, to: Mapping[str, Descriptor], *, expect: Mapping[str, str | None]) -> None:
            """Store nothing."""

    with pytest.raises(Conflict, match="other writers overwrote its list"):
        attest_once(Forgetful(store._path), pushed, "comparison", comparison(pushed), KEY, AT)


def test_a_day_is_that_of_utc() -> None:
    assert version_of(RUN, datetime(2026, 12, 31, 23, 59, tzinfo=UTC)).startswith("20261231-")
