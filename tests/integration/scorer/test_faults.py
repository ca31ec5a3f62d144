"""The short form of the fault campaign: a point of the crash matrix, a seeded round, and a fault that costs nothing."""

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.chaos.faults.matrix import crash_at
from tests.chaos.faults.plan import plan
from tests.chaos.faults.rounds import play
from tests.chaos.faults.stage import Ground
from tests.chaos.load import Load
from tests.integration.scorer.rig import Rig, until

RATE = 2_000.0
POINT = "before:send_offsets_to_transaction"


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    """One broker of its own, behind a proxy, and a registry with versions."""
    with contextlib.closing(Ground(1)) as ready:
        yield ready.start()


def test_a_crash_at_a_step_of_a_transaction_costs_nothing(ground: Ground) -> None:
    result = play(ground, crash_at(POINT, 1, 1), RATE)
    assert result.clean, result
    assert result.exits["signal 9"] == 1


def test_a_seeded_round_is_clean(ground: Ground) -> None:
    result = play(ground, plan(1, 2, (), 1, 5.0, only="kill-scorer"), RATE)
    assert result.clean, result
    assert result.events > 0


def more_than(rig: Rig, count: int) -> bool:
    return rig.answered() > count


def test_calls_continue_after_all_connections_were_lost(ground: Ground, tmp_path: Path, unique: str) -> None:
    """A client that restarts from its bootstrap servers forgets the broker that a call waits for: the call never returns."""
    direct, proxies = ground.cluster.bootstrap_servers, ground.cluster.proxies
    with contextlib.closing(Rig(direct, tmp_path, unique)) as rig:
        rig.stocked().configure(kafka={"bootstrap_servers": ground.cluster.proxied_servers})
        scorer = rig.start().ready()
        load = Load(direct, rig.events_topic, RATE)
        load.start()
        for k in range(3):
            until(partial(more_than, rig, rig.answered()), f"scores before fault {k}")
            proxies.hold()
            time.sleep(1.5)
            proxies.cut()
        load.finish()
        until(lambda: rig.answered() == load.written, "all scores")
        rig.assert_clean(events=load.written, scored=load.written)
        assert "a call to the broker has not returned" not in scorer.said
        assert scorer.stop() == 0
