"""An examination finds every event that kills, convicts no other, and ends; the note of what is in hand outlives a crash."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from model_registry import package
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


def examined(events: int, deadly: set[int], by_hand: set[int]) -> tuple[set[int], int]:
    """The offsets convicted, and how many processes died. Some calls, by their number, are killed by hand."""
    examination, at, convicted, deaths, calls = Bisection({PLACE: events}, LARGEST, 0.0), 0, set(), 0, 0
    while not examination.over({PLACE: at}, 0.0):
        taken = batch(at, min(examination.limit, events - at))
        calls += 1
        if deadly & set(taken.offsets) or calls in by_hand:
            deaths += 1
            if not examination.died(taken, 0.0):
                continue
            convicted |= set(taken.offsets)
        examination.answered(taken)
        at += len(taken)
    return convicted, deaths


@given(st.integers(1, 6_000), st.sets(st.integers(0, 5_999), max_size=12), st.sets(st.integers(1, 200), max_size=40))
def test_every_guilty_event_is_convicted_and_no_other(events: int, deadly: set[int], by_hand: set[int]) -> None:
    """However often processes are killed by hand, unless twice in a row."""
    by_hand = {call for call in by_hand if call - 1 not in by_hand}
    deadly = {offset for offset in deadly if offset < events}
    convicted, deaths = examined(events, deadly, by_hand)
    assert convicted == deadly
    assert by_hand or deaths <= 30 * len(deadly)


def test_an_examination_ends_when_another_scorer_has_answered_or_nobody_has_died_for_long() -> None:
    examination = Bisection({PLACE: 10, ("flights", 1): 5}, LARGEST, 0.0)
    assert not examination.over({PLACE: 10, ("flights", 1): 4}, 1.0)
    assert examination.suspects == {("flights", 1): 5}
    assert examination.over({("flights", 1): 4}, QUIET_SECONDS + 1.0)
    assert examination.over({("flights", 1): 5}, 2.0)


def whole_numbers(path: Path) -> None:
    io = models.tensor("x", TensorProto.INT64, "N", 1), models.tensor("y", TensorProto.FLOAT, "N", 1)
    models.save([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], [io[0]], [io[1]], path)


def test_a_version_that_the_input_format_cannot_feed_is_refused(tmp_path: Path) -> None:
    inputs = [{"tensor": "x", "dtype": "int64", "fields": ["a"]}]
    folder = models.package(tmp_path / "m", whole_numbers, {"inputs": inputs, "output": {"tensor": "y"}})
    examiner = SandboxProcess(settings_of("float32", id="header:ce_id"), lambda: None)
    try:
        with pytest.raises(ModelRefused, match="supports floats only"):
            examiner.load(package.read(folder, name="m", version="1", digest="sha256:" + "0" * 64))
    finally:
        examiner.close()


ENDS = {("flights", 0): 7, ("flights", 12): 2**62}


def test_a_note_outlives_the_process_that_wrote_it(tmp_path: Path) -> None:
    in_file, in_memory = InFlightJournal(journal_path(tmp_path, "a")), InFlightJournal()
    for note in (in_file, in_memory):
        child = os.fork()
        if child == 0:
            note.note(ENDS)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        assert note.read() == ENDS
    assert InFlightJournal(journal_path(tmp_path, "a")).read() == ENDS
    in_file.clear()
    assert InFlightJournal(journal_path(tmp_path, "a")).read() == {}


def test_a_folder_that_cannot_be_written_leaves_the_note_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "refused")

    monkeypatch.setattr(os, "open", refuse)
    note = InFlightJournal(journal_path(tmp_path, "a"))
    note.note(ENDS)
    assert note.read() == ENDS


def test_a_note_has_room_for_many_partitions(tmp_path: Path) -> None:
    note = InFlightJournal(journal_path(tmp_path, "a"))
    note.note({("t" * 249, number): 2**62 for number in range(5_000)})
    assert 100 < len(note.read()) < 1_000
    note.note({("t", number): 2**62 for number in range(5_000)})
    assert len(note.read()) == 1_000


@given(st.binary(max_size=200))
def test_whatever_stands_there_is_read(tmp_path_factory: pytest.TempPathFactory, body: bytes) -> None:
    path = journal_path(tmp_path_factory.mktemp("cache"), "a")
    path.parent.mkdir()
    path.write_bytes(body.ljust(SIZE, b"\0"))
    assert isinstance(InFlightJournal(path).read(), dict)
