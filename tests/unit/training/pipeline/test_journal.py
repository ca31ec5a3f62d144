"""The journal of a run: a step is recorded completely or not at all, and a step that is set aside is repeated."""

from pathlib import Path

import msgspec
import pytest

from publisher.errors import REFUSED, Fatal
from training.pipeline.journal import Journal
from training.pipeline.run_dirs import alone, iso, named, runs
from training.pipeline.step_results import RunOutcome


def test_a_step_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "steps")
    assert journal.result("end", RunOutcome) is None
    journal.write("end", RunOutcome("same", "why"), 1.23456, 5)
    assert journal.result("end", RunOutcome) == RunOutcome("same", "why")
    entry = journal.entry("end")
    assert entry is not None
    assert (entry.step, entry.ended_ms, entry.seconds) == ("end", 5, 1.235)
    assert [path.name for path in (tmp_path / "steps").iterdir()] == ["end.json"]


def test_steps_that_are_set_aside_are_not_done_and_their_files_remain(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "steps")
    for because in ("first", "second"):
        journal.write("end", RunOutcome("same", because), 0, 0)
        journal.set_aside(["end", "none"])
    assert journal.entry("end") is None
    reasons = [msgspec.json.decode((tmp_path / f"steps/end.{n}.json").read_bytes())["result"]["because"] for n in (1, 2)]
    assert reasons == ["first", "second"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"step":"end","ended_ms":0,"seconds":0,"result":{"outcome":"won"}}'])
def test_a_damaged_document_is_named_with_the_remedy(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps/end.json").write_bytes(content)
    with pytest.raises(Fatal, match=r"steps/end\.json cannot be read") as raised:
        Journal(tmp_path / "steps").result("end", RunOutcome)
    assert (raised.value.exit_code, "run --new" in raised.value.hint) == (REFUSED, True)


def test_runs_are_in_the_order_of_their_begin(tmp_path: Path) -> None:
    times = [1_700_000_000_000, 1_700_000_000_001, 1_800_000_000_000]
    for time in reversed(times):
        (named(tmp_path, time) / "steps").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    assert [path.name for path in runs(tmp_path)] == [named(tmp_path, time).name for time in times]
    assert named(tmp_path, times[1]).name == "20231114T221320001Z"
    assert iso(times[1]) == "2023-11-14T22:13:20.001Z"


def test_only_one_run_at_a_time_uses_a_folder(tmp_path: Path) -> None:
    with alone(tmp_path / "runs"), pytest.raises(Fatal, match="another run is active") as raised, alone(tmp_path / "runs"):
        pass
    assert raised.value.exit_code == REFUSED
    with alone(tmp_path / "runs"):
        pass
