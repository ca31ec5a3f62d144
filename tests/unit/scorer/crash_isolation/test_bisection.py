"""A bisection finds exactly the events that kill their process, and ends. The in-flight journal outlives a crash."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from model_registry import package
from publisher.runtime.context import Context
from scorer.backends.base import ModelRefused
from scorer.crash_isolation.bisection import QUIET_SECONDS, Bisection
from scorer.crash_isolation.in_flight_journal import SIZE, InFlightJournal, journal_path
from scorer.crash_isolation.sandbox_process import SandboxProcess
from scorer.decoding.batch import Batch
from tests.support import models
from tests.unit.scorer.decoding.schema_events import settings_of

LARGEST = 4_096
PLACE = ("flights", 0)


def batch(first: int, events: int) -> Batch:
    n, offsets = events, list(range(first, first + events))
    return Batch(["flights"] * n, [0] * n, offsets, [None] * n, [None] * n, [0] * n, [None] * n)


def bisect(events: int, deadly: set[int], by_hand: set[int]) -> tuple[set[int], int]:
    """Return the offsets marked as failing and the number of deaths. The calls with numbers in `by_hand` are killed."""
    bisection = Bisection({PLACE: events}, LARGEST, 0.0)
    failing: set[int] = set()
    at = deaths = calls = 0
    while not bisection.is_over({PLACE: at}, 0.0):
        next_batch = batch(at, min(bisection.limit, events - at))
        calls += 1
        if deadly & set(next_batch.offsets) or calls in by_hand:
            deaths += 1
            if not bisection.died(next_batch, 0.0):
                continue
            failing |= set(next_batch.offsets)
        bisection.record_scored(next_batch)
        at += len(next_batch)
    return failing, deaths


@given(st.integers(1, 6_000), st.sets(st.integers(0, 5_999), max_size=12), st.sets(st.integers(1, 200), max_size=40))
def test_exactly_the_deadly_events_are_marked_as_failing(events: int, deadly: set[int], by_hand: set[int]) -> None:
    """Other kills have no effect unless two of them are consecutive."""
    by_hand = {call for call in by_hand if call - 1 not in by_hand}
    deadly = {offset for offset in deadly if offset < events}
    failing, deaths = bisect(events, deadly, by_hand)
    assert failing == deadly
    assert by_hand or deaths <= 30 * len(deadly)


def test_a_bisection_ends_after_answers_of_another_scorer_or_a_time_without_deaths() -> None:
    bisection = Bisection({PLACE: 10, ("flights", 1): 5}, LARGEST, 0.0)
    assert not bisection.is_over({PLACE: 10, ("flights", 1): 4}, 1.0)
    assert bisection.suspects == {("flights", 1): 5}
    assert bisection.is_over({("flights", 1): 4}, QUIET_SECONDS + 1.0)
    assert bisection.is_over({("flights", 1): 5}, 2.0)


def save_integer_cast(path: Path) -> None:
    io = models.tensor("x", TensorProto.INT64, "N", 1), models.tensor("y", TensorProto.FLOAT, "N", 1)
    models.save([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], [io[0]], [io[1]], path)


def test_a_version_that_the_input_format_cannot_feed_is_refused(tmp_path: Path) -> None:
    inputs = [{"tensor": "x", "dtype": "int64", "fields": ["a"]}]
    folder = models.package(tmp_path / "m", save_integer_cast, {"inputs": inputs, "output": {"tensor": "y"}})
    sandbox = SandboxProcess(settings_of("float32", id="header:ce_id"), Context())
    try:
        with pytest.raises(ModelRefused, match="supports floats only"):
            sandbox.load(package.read(folder, name="m", version="1", digest="sha256:" + "0" * 64))
    finally:
        sandbox.close()


ENDS = {("flights", 0): 7, ("flights", 12): 2**62}


def test_a_journal_outlives_the_process_that_wrote_it(tmp_path: Path) -> None:
    in_file, in_memory = InFlightJournal(journal_path(tmp_path, "a")), InFlightJournal()
    for journal in (in_file, in_memory):
        child = os.fork()
        if child == 0:
            journal.write(ENDS)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        assert journal.read() == ENDS
    assert InFlightJournal(journal_path(tmp_path, "a")).read() == ENDS
    in_file.clear()
    assert InFlightJournal(journal_path(tmp_path, "a")).read() == {}


def test_in_a_read_only_folder_the_journal_is_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "refused")

    monkeypatch.setattr(os, "open", refuse)
    journal = InFlightJournal(journal_path(tmp_path, "a"))
    journal.write(ENDS)
    assert journal.read() == ENDS


def test_a_journal_has_room_for_many_partitions(tmp_path: Path) -> None:
    journal = InFlightJournal(journal_path(tmp_path, "a"))
    journal.write({("t" * 249, number): 2**62 for number in range(5_000)})
    assert 100 < len(journal.read()) < 1_000
    journal.write({("t", number): 2**62 for number in range(5_000)})
    assert len(journal.read()) == 1_000


@given(st.binary(max_size=200))
def test_any_content_of_the_file_can_be_read(tmp_path_factory: pytest.TempPathFactory, body: bytes) -> None:
    path = journal_path(tmp_path_factory.mktemp("cache"), "a")
    path.parent.mkdir()
    path.write_bytes(body.ljust(SIZE, b"\0"))
    assert isinstance(InFlightJournal(path).read(), dict)
