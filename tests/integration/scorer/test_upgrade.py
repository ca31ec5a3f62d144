"""Scorers of the base version and of the present version in one group, replaced one at a time while events flow."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chaos.load import Load
from tests.integration.scorer.rig import MakeRig, Rig, ScorerProcess, command, until
from tests.support.base_version import BaseVersion

RATE = 1_000.0
PROGRESS = 1_000
"""The number of events that the group scores between two replacements."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BaseVersion:
    return BaseVersion(tmp_path_factory.mktemp("base"))


class Group:
    """The scorers of a consumer group, each of the base version or of the present version."""

    def __init__(self, rig: Rig, base: BaseVersion) -> None:
        self._rig = rig
        self._base = base
        self.scorers: dict[str, ScorerProcess] = {}

    def start(self, replica: str, *, base: bool) -> None:
        self._rig.program = self._base.command("scorer") if base else [command("scorer")]
        scorer = self._rig.start(replica, PYTHONPATH=str(self._base.folder)) if base else self._rig.start(replica)
        scorer.ready()
        assert self._base.is_run_by(scorer.worker) is base
        self.scorers[replica] = scorer

    def replace(self, replica: str, *, base: bool) -> None:
        """Stop a scorer, start the other version under its replica name, and wait until both scorers own partitions."""
        assert self.scorers[replica].stop() == 0
        self.start(replica, base=base)
        self.wait_for_partitions()
        count_before = self._rig.answered()
        until(lambda: self._rig.answered() >= count_before + PROGRESS, "progress")

    def wait_for_partitions(self) -> None:
        until(lambda: all(scorer.metric("scorer_assigned_partitions") == 3 for scorer in self.scorers.values()), "partitions")

    def promote(self, version: str, revision: int) -> None:
        self._rig.promote(version)
        until(lambda: all(s.metric("scorer_model_revision") == revision for s in self.scorers.values()), f"revision {revision}")

    def base_reports(self, *arguments: str) -> dict[str, Any]:
        """Return the JSON report of a command of the base version."""
        completed = subprocess.run(
            [*self._base.command("scorer"), *arguments, "scorer.yaml", "--json"],
            cwd=self._rig.folder,
            env={**os.environ, **self._base.environment},
            capture_output=True,
            text=True,
            check=True,
        )
        report: dict[str, Any] = json.loads(completed.stdout)
        return report


@contextlib.contextmanager
def load(rig: Rig) -> Iterator[Load]:
    writer = Load(rig.bootstrap_servers, rig.events_topic, RATE)
    writer.start()
    try:
        yield writer
    finally:
        writer.finish()


def running(status: dict[str, Any]) -> set[str]:
    """Return the scorers that a status report shows as running."""
    return {row["scorer"] for row in status["scorers"] if row["state"] == "running"}


@pytest.mark.debian("cc")
def test_a_rolling_upgrade_and_its_rollback_lose_double_and_reorder_nothing(make_rig: MakeRig, base: BaseVersion) -> None:
    rig = make_rig().stocked(6, versions=2)
    group = Group(rig, base)
    group.start("a", base=True)
    group.start("b", base=True)
    with load(rig) as written:
        group.wait_for_partitions()
        group.replace("a", base=False)
        group.promote("2.0.0", 2)
        assert running(group.base_reports("status")) == running({"scorers": rig.fleet()}) == {f"{rig.name}.a", f"{rig.name}.b"}
        group.replace("b", base=False)
        group.replace("b", base=True)
        group.promote("1.0.0", 3)
        group.replace("a", base=True)
    until(lambda: rig.answered() >= written.events, "all scores")
    rig.assert_clean(events=written.events, scored=written.events)
    assert group.base_reports("audit")["clean"]
