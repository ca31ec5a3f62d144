"""The move of a channel by a run happens once, after interruptions and beside the moves of others."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from model_registry.channels import channel, signed_move
from model_registry.errors import NotFound, Refused
from model_registry.oci import tags
from model_registry.oci.manifest import Descriptor
from model_registry.stores.base import Store
from model_registry.stores.oci_layout import LayoutStore
from tests.support.attested import CHAMPION, RUN
from tests.support.publishing import (
    AT,
    OTHER,
    VERSION,
    Killed,
    copied,
    folder,
    origin,
    pushed,
    records,
)
from tests.unit.model_registry.conftest import make_package, promote, store
from tests.unit.model_registry.keyring import ONE, trusted
from training.publish.promote import ComparedChampion, Overtaken, Promoted, judged_by, promote_once, standing
from training.publish.push_version import push
from training.snapshot.files import Copied

__all__ = ["copied", "folder", "make_package", "pushed", "records", "store"]


class Parts(LayoutStore):
    """A store that moves several tags one by one, as a registry over HTTP does, and dies once in between."""

    dies = True

    def move_tags(self, to: Mapping[str, Descriptor], *, expect: Mapping[str, str | None]) -> None:
        if len(to) == 1 or not self.dies:
            return super().move_tags(to, expect=expect)
        first = next(iter(to))
        super().move_tags({first: to[first]}, expect=expect)
        self.dies = False
        raise Killed


def moved(store: Store, digest: str, judged: ComparedChampion, run: str = RUN) -> Promoted | Overtaken:
    return promote_once(store, "prod", VERSION, digest, judged, run, "training@host", datetime.now(UTC))


def test_a_move_happens_once_and_is_recognised_after_moves_of_others(
    store: LayoutStore, folder: Path, copied: Copied, pushed: str
) -> None:
    promoted = moved(store, pushed, ComparedChampion())
    assert isinstance(promoted, Promoted)
    assert (promoted.move.revision, promoted.move.reason, promoted.move.actor) == (1, "run 0123456789ab", "training@host")
    assert moved(store, pushed, ComparedChampion()) == Promoted(promoted.move, from_history=True)
    push(store, folder, "by-hand", origin(copied))
    promote(store, "by-hand")
    assert moved(store, pushed, ComparedChampion()) == Promoted(promoted.move, from_history=True)
    assert channel.resolve(store, "prod").version == "by-hand"


def test_the_move_of_a_run_is_signed_with_its_key(store: LayoutStore, pushed: str) -> None:
    promoted = promote_once(store, "prod", VERSION, pushed, ComparedChampion(), RUN, "training@host", AT, ONE)
    assert isinstance(promoted, Promoted)
    assert signed_move.verify(store, "prod", 1, trusted(ONE), AT).move == promoted.move


def test_a_move_in_between_is_returned_with_the_champion_to_compare_with(
    store: LayoutStore, folder: Path, copied: Copied, pushed: str
) -> None:
    assert standing(store, "prod") is None
    push(store, folder, "by-hand", origin(copied))
    promote(store, "by-hand")
    result = moved(store, pushed, ComparedChampion())
    assert isinstance(result, Overtaken)
    assert result.by is not None
    judged = judged_by(result.by)
    assert judged == ComparedChampion(store.resolve("by-hand").digest, 1)
    assert moved(store, pushed, ComparedChampion(CHAMPION, 1)) == result
    assert moved(store, pushed, ComparedChampion(judged.digest, 2)) == result
    promoted = moved(store, pushed, judged)
    assert isinstance(promoted, Promoted)
    assert (promoted.move.revision, promoted.move.from_version) == (2, "by-hand")


def test_another_digest_or_no_channel_is_refused(store: LayoutStore, pushed: str) -> None:
    with pytest.raises(Refused, match="as expected"):
        moved(store, CHAMPION, ComparedChampion())
    with pytest.raises(NotFound, match="no version 'nowhere'"):
        promote_once(store, "prod", "nowhere", pushed, ComparedChampion(), RUN, "", AT)
    with pytest.raises(Refused, match="is the tag of a version, not a channel"):
        promote_once(store, VERSION, VERSION, pushed, ComparedChampion(), RUN, "", AT)


def test_a_move_interrupted_between_history_and_tag_is_completed(store: LayoutStore, pushed: str) -> None:
    with pytest.raises(Killed):
        moved(Parts(store._path), pushed, ComparedChampion())
    assert tags.revisions(store.tags(), "prod") == [1]
    assert "prod" not in store.tags()
    result = moved(store, pushed, ComparedChampion())
    assert isinstance(result, Promoted)
    assert result.move.revision == 1
    assert channel.resolve(store, "prod").digest == pushed
    assert len(channel.history(store, "prod")) == 1


def test_an_interrupted_move_of_others_is_ignored(store: LayoutStore, folder: Path, copied: Copied, pushed: str) -> None:
    push(store, folder, "by-hand", origin(copied))
    promote(store, "by-hand")
    judged = judged_by(standing(store, "prod"))
    with pytest.raises(Killed):
        promote(Parts(store._path), VERSION)
    promoted = moved(store, pushed, judged)
    assert isinstance(promoted, Promoted)
    assert promoted.move.revision == 3
    assert channel.resolve(store, "prod").revision == 3


def test_an_interrupted_move_of_the_run_is_void_after_a_move_of_others(
    store: LayoutStore, folder: Path, copied: Copied, pushed: str
) -> None:
    push(store, folder, "by-hand", origin(copied))
    promote(store, "by-hand")
    judged = judged_by(standing(store, "prod"))
    with pytest.raises(Killed):
        moved(Parts(store._path), pushed, judged)
    push(store, folder, "by-hand-2", origin(copied, OTHER))
    promote(store, "by-hand-2")
    result = moved(store, pushed, judged)
    assert isinstance(result, Overtaken)
    assert channel.resolve(store, "prod").version == "by-hand-2"


class Contested(LayoutStore):
    """A store in which another process moves the channel right before each of the first moves."""

    def __init__(self, path: Path, others: Iterable[str]) -> None:
        super().__init__(path)
        self._others = list(others)

    def move_tags(self, to: Mapping[str, Descriptor], *, expect: Mapping[str, str | None]) -> None:
        if self._others and "prod" in to:
            promote(LayoutStore(self._path), self._others.pop())
        super().move_tags(to, expect=expect)


def test_a_move_at_the_last_moment_is_detected(store: LayoutStore, folder: Path, copied: Copied, pushed: str) -> None:
    push(store, folder, "by-hand", origin(copied))
    result = moved(Contested(store._path, ["by-hand"]), pushed, ComparedChampion())
    assert isinstance(result, Overtaken)
    assert [move.to_version for move in channel.history(store, "prod")] == ["by-hand"]
