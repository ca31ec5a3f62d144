"""Watching a channel: every move once and in order, whatever happens to the registry meanwhile."""

from datetime import UTC, datetime
from itertools import islice

import pytest

from model_registry.channels import channel, watch
from model_registry.errors import Corrupt, RegistryError, Unreachable
from model_registry.package import folder as package
from model_registry.stores.layout import LayoutStore
from tests.unit.model_registry.conftest import MakePackage

NOW = datetime(2013, 9, 1, 6, 0, tzinfo=UTC)


class Silent(LayoutStore):
    """Raises what the test says, when asked."""

    error: RegistryError | None = None

    def validator(self, tag: str) -> str:
        if self.error is not None:
            raise self.error
        return super().validator(tag)


def test_moves_come_in_order_through_silences_and_before_the_channel_is_there(
    store: LayoutStore, make_package: MakePackage
) -> None:
    for version in ("1.0.0", "2.0.0"):
        package.push(store, make_package(version, model=version.encode()), "m", version)
    silent, failures, rounds = Silent(store._path), [], iter(range(100))

    def pause(failed: RegistryError | None) -> None:
        failures.append(failed)
        step = next(rounds)
        silent.error = Unreachable("down") if step == 1 else None
        if step in (1, 3):  # twice while nobody can see it, then once more
            for version in ("1.0.0", "2.0.0"):
                channel.promote(store, "prod", version, actor="op", reason="", now=NOW)

    seen = list(islice(watch.moves(silent, "prod", 0, pause), 4))
    assert [move.revision for move in seen] == [1, 2, 3, 4]
    assert [str(failed) for failed in failures if failed] == ["down"]
    silent.error = Corrupt("broken")
    with pytest.raises(Corrupt):
        next(watch.moves(silent, "prod", 0, pause))
