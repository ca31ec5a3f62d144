"""Moves of a rollout in a registry folder: each is applied once, even if it is interrupted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from model_registry.channels import channel, signed_move
from model_registry.channels.history import EVIDENCE_TYPE
from model_registry.errors import NotFound, Refused
from model_registry.oci import manifest
from model_registry.oci.digests import from_bytes
from model_registry.oci.manifest import Descriptor
from model_registry.stores.oci_layout import LayoutStore
from scorer.rollout.controller import log_records
from scorer.rollout.controller.apply_move import MoveOvertaken, apply_move
from scorer.rollout.controller.log_records import EntryKind, LogEntry, PlannedMove
from tests.unit.model_registry.conftest import MakePackage, promote, push_versions
from tests.unit.model_registry.keyring import NOW, ONE, trusted


class Killed(Exception):
    """A simulated end of the process."""


@pytest.fixture
def store(tmp_path: Path, make_package: MakePackage) -> LayoutStore:
    """Return a registry with versions 1.0.0 and 2.0.0, and with `prod` at revision 1 on the first."""
    registry = LayoutStore(tmp_path / "registry" / "flights")
    push_versions(registry, make_package, "1.0.0", "2.0.0")
    promote(registry, "1.0.0")
    return registry


def intended(planned: PlannedMove, seq: int = 3) -> LogEntry:
    return LogEntry("r", seq, EntryKind.INTENDED, 1, "controller", 1, ["because"], move=planned, verdict="promote")


def canary(expects: int = 1) -> LogEntry:
    return intended(PlannedMove(expects, "2.0.0", canary=5, pairs=20))


def versions(store: LayoutStore) -> list[tuple[str, str, int]]:
    return [(role.role, role.version, role.weight) for role in channel.resolve(store, "prod").roles]


def test_a_move_is_in_the_history_with_its_evidence(store: LayoutStore) -> None:
    entry = canary()
    move = apply_move(store, "prod", entry)
    assert (move.revision, move.actor, move.reason) == (2, "rollout r", "promote: because")
    assert move.evidence == from_bytes(log_records.encode(entry))
    content = store.blob(manifest.describe_content(EVIDENCE_TYPE, log_records.encode(entry)))
    assert log_records.decode_entry(b"".join(content)) == entry
    assert [role.pairs for role in channel.resolve(store, "prod").roles] == [0, 20]
    assert channel.history(store, "prod")[-1] == move
    rollback = apply_move(store, "prod", intended(PlannedMove(2, restores=1), 5))
    assert (rollback.revision, rollback.to_version, rollback.restores) == (3, "1.0.0", 1)


def test_moves_forward_and_back_are_signed_if_there_is_a_key(store: LayoutStore) -> None:
    for entry in (canary(), intended(PlannedMove(2, restores=1), 5)):
        move = apply_move(store, "prod", entry, ONE)
        assert signed_move.verify(store, "prod", move.revision, trusted(ONE), NOW).move == move


def test_a_completed_move_is_recognized_and_not_repeated(store: LayoutStore) -> None:
    first = apply_move(store, "prod", canary())
    assert apply_move(store, "prod", canary()) == first
    assert len(channel.history(store, "prod")) == 2


def test_a_move_interrupted_between_history_and_tag_is_completed(store: LayoutStore, monkeypatch: pytest.MonkeyPatch) -> None:
    move_tags = LayoutStore.move_tags

    def move_history_tag_only(self: LayoutStore, to: Mapping[str, Descriptor], *, expect: Mapping[str, str | None]) -> None:
        history_tags = {tag: at for tag, at in to.items() if tag != "prod"}
        move_tags(self, history_tags, expect={tag: at for tag, at in expect.items() if tag in history_tags})
        raise Killed

    monkeypatch.setattr(LayoutStore, "move_tags", move_history_tag_only)
    with pytest.raises(Killed):
        apply_move(store, "prod", canary())
    monkeypatch.setattr(LayoutStore, "move_tags", move_tags)
    assert channel.resolve(store, "prod").revision == 1
    move = apply_move(store, "prod", canary())
    assert (move.revision, channel.resolve(store, "prod").revision) == (3, 3)
    assert versions(store) == [("champion", "1.0.0", 95), ("canary", "2.0.0", 5)]
    assert apply_move(store, "prod", canary()) == move


def test_the_move_of_another_process_prevails(store: LayoutStore) -> None:
    promote(store, "2.0.0")
    with pytest.raises(MoveOvertaken, match="at revision 2, and was expected at 1"):
        apply_move(store, "prod", canary())
    apply_move(store, "prod", intended(PlannedMove(2, "1.0.0")))
    promote(store, "2.0.0")
    with pytest.raises(MoveOvertaken):
        apply_move(store, "prod", intended(PlannedMove(2, "1.0.0")))
    assert channel.resolve(store, "prod").version == "2.0.0"


def test_a_concurrent_move_of_another_process_is_detected(store: LayoutStore, monkeypatch: pytest.MonkeyPatch) -> None:
    original = channel.promote

    def promote_after_another(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(channel, "promote", original)
        promote(store, "2.0.0")
        return original(*arguments, **options)

    monkeypatch.setattr(channel, "promote", promote_after_another)
    with pytest.raises(MoveOvertaken):
        apply_move(store, "prod", canary())
    assert versions(store) == []


def test_a_missing_version_is_reported(store: LayoutStore) -> None:
    with pytest.raises(NotFound, match=r"no version '3\.0\.0'"):
        apply_move(store, "prod", intended(PlannedMove(1, "3.0.0", canary=5)))
    with pytest.raises(Refused, match="not sha256:0"):
        apply_move(store, "prod", intended(PlannedMove(1, "2.0.0", "sha256:" + "0" * 64, canary=5)))
    assert channel.resolve(store, "prod").revision == 1
