"""A scorer on the real broker whose model lives on a server: swaps, and servers that die, freeze and slow down, under load.

Prints what a recovery took, in seconds after the server was whole again. A subclass names the kind of server.
"""

import itertools
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tests.integration.backends import models
from tests.integration.backends.servers import KINDS, ModelServer
from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.integration.scorer.test_kill import load

COUNT = 4_000
RATE = 1_000
SLOW_SECONDS = 3.0


class UnderLoad:
    """No event is lost, doubled or dead-lettered, and exactly one version scores each event."""

    kind: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
        """One server for the class; each scorer's model has a name of its own there."""
        server = KINDS[cls.kind].server(tmp_path_factory.mktemp(cls.kind) / "served").start()
        yield server
        server.close()

    @pytest.fixture
    def rig(self, make_rig: MakeRig, server: ModelServer) -> Rig:
        """Version 1.0.0 in production, of a model that this server holds."""
        model = {
            "backend": KINDS[self.kind].backend,
            "endpoints": [server.address],
            "server_folder": str(server.folder),
            "deadline_ms": 1_000,
            "load_seconds": 60,
        }
        rig = make_rig(model=model)
        rig.push(self.package(rig.folder / "one", 2.0), "1.0.0")
        rig.promote("1.0.0")
        rig.create(6)
        return rig

    def package(self, folder: Path, factor: float) -> Path:
        """score = factor * (a + b) + n."""
        models.folder(folder, factor)
        KINDS[self.kind].model(folder, factor)
        return folder

    def test_a_version_is_swapped_under_load_and_each_event_is_scored_by_one(self, rig: Rig) -> None:
        rig.push(self.package(rig.folder / "two", 3.0), "2.0.0")
        scorer = rig.start().ready()
        flow = load(rig, COUNT, RATE)
        until(lambda: rig.answered() > 500, "the first scores")
        rig.promote("2.0.0")
        until(lambda: scorer.metric("scorer_swaps_total") == 1, "the flip")
        added = rig.emit(events(500, start=COUNT, keys=300))
        flow.join()
        until(lambda: rig.answered() >= COUNT + added, "all scores")
        rig.assert_clean(events=COUNT + added, scored=COUNT + added)
        factors = {"1.0.0": 2.0, "2.0.0": 3.0}
        scores = rig.scores()
        assert {record["version"] for record in scores} == set(factors)
        assert all(record["score"] == float(record["id"][1:]) * factors[record["version"]] for record in scores)
        assert scorer.stop() == 0

    def test_a_version_with_a_wrong_golden_example_is_refused_and_leaves_nothing_on_the_server(
        self, rig: Rig, server: ModelServer
    ) -> None:
        wrong = models.folder(rig.folder / "wrong", 3.0)
        KINDS[self.kind].model(wrong, 5.0)
        rig.push(wrong, "2.0.0")
        scorer = rig.start().ready()
        before = set(server.folder.rglob("*"))
        rig.promote("2.0.0")
        until(lambda: scorer.metric("scorer_versions_refused_total") == 1, "the refusal")
        until(lambda: set(server.folder.rglob("*")) <= before, "the clean-up")
        rig.emit(events(20))
        until(lambda: rig.answered() >= 20, "the scores")
        assert {record["version"] for record in rig.scores()} == {"1.0.0"}
        assert scorer.stop() == 0

    @pytest.mark.parametrize("fault", ["killed", "stopped", "slowed"])
    def test_an_unavailable_server_costs_only_time(self, rig: Rig, server: ModelServer, fault: str) -> None:
        break_it, mend_it = faults(server, fault)
        scorer = rig.start().ready()
        flow = load(rig, COUNT, RATE)
        until(lambda: rig.answered() > 500, "the first scores")
        break_it()
        until(lambda: scorer.metric("scorer_away") == 1, "the scorer's notice")
        assert scorer.get("/readyz")[0] == 503
        assert scorer.get("/livez")[0] == 200
        flow.join()
        mend_it()
        mended = time.monotonic()
        until(lambda: scorer.metric("scorer_away") == 0, "recovery")
        print(f"\n{self.kind} {fault}: scoring again {time.monotonic() - mended:.2f} s after the server was back", end="")
        until(lambda: rig.answered() >= COUNT, "all scores")
        print(f", the backlog of at most {COUNT - 500} events gone after {time.monotonic() - mended:.2f} s")
        rig.assert_clean(events=COUNT, scored=COUNT)
        assert rig.dead() == []
        assert scorer.said.count("assigned: ") == 1
        assert scorer.stop() == 0

    def test_a_fallback_answers_while_the_server_is_unavailable_and_is_corrected_later(
        self, rig: Rig, server: ModelServer
    ) -> None:
        fallback = {"score": [0.5], "decision": "review", "after_ms": 500}
        rig.configure(model={"fallback": fallback})
        message = rig.run("scorer", "check", "scorer.yaml", code=1).stderr
        assert "model.fallback does not fit this version: score has to be a number" in " ".join(message.split())
        rig.configure(model={"fallback": {**fallback, "score": -1.5}})
        scorer = rig.start().ready()
        rig.emit(events(100))
        until(lambda: rig.answered() == 100, "the model's scores")
        server.kill()
        rig.emit(events(500, start=100))
        rig.produce(b"{", key=b"k")
        until(lambda: rig.answered() == 601, "the fallback's answers")
        assert scorer.metric("scorer_away") == 1
        assert scorer.get("/readyz")[0] == 200
        server.start()
        starts = itertools.count(600)

        def scored_again() -> bool:
            rig.emit(events(1, start=next(starts)))
            return scorer.metric("scorer_away") == 0

        until(scored_again, "a model's score again")
        count = next(starts)
        until(lambda: rig.answered() == count + 1, "the last scores")
        records = rig.scores()
        fallen = [record for record in records if record["status"] == "fallback"]
        assert {(record["score"], record["decision"], record["role"]) for record in fallen} == {(-1.5, "review", "champion")}
        assert {f"e{number}" for number in range(100, 600)} <= {record["id"] for record in fallen}
        rig.assert_clean(events=count + 1, scored=len(records) - len(fallen), fallback=len(fallen), dead_lettered=1)
        job = json.loads(rig.run("scorer", "rescore", "scorer.yaml", "--status", "fallback", "--json").stdout)
        assert job["total"]["corrected"] == len(fallen)
        assert scorer.stop() == 0


def faults(server: ModelServer, fault: str) -> tuple[Callable[[], object], Callable[[], object]]:
    if fault == "killed":
        return server.kill, server.start
    if fault == "stopped":
        return lambda: server.signal(signal.SIGSTOP), lambda: server.signal(signal.SIGCONT)
    return lambda: server.slow(SLOW_SECONDS), lambda: server.slow(0)
