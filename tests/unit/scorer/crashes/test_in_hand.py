"""The note of what is in hand: written whole or not at all, kept by file or by memory, read with suspicion."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorer.crashes.in_hand import SIZE, InHand, path_of

ENDS = {("flights", 0): 7, ("flights", 12): 2**62}


def test_a_note_outlives_the_process_that_wrote_it(tmp_path: Path) -> None:
    in_file, in_memory = InHand(path_of(tmp_path, "a")), InHand()
    for note in (in_file, in_memory):
        child = os.fork()
        if child == 0:
            note.note(ENDS)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        assert note.read() == ENDS
    assert InHand(path_of(tmp_path, "a")).read() == ENDS
    in_file.clear()
    assert InHand(path_of(tmp_path, "a")).read() == {}


def test_a_folder_that_cannot_be_written_leaves_the_note_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "refused")

    monkeypatch.setattr(os, "open", refuse)
    note = InHand(path_of(tmp_path, "a"))
    note.note(ENDS)
    assert note.read() == ENDS


def test_a_note_has_room_for_many_partitions(tmp_path: Path) -> None:
    note = InHand(path_of(tmp_path, "a"))
    note.note({("t" * 249, number): 2**62 for number in range(5_000)})
    assert 100 < len(note.read()) < 1_000
    note.note({("t", number): 2**62 for number in range(5_000)})
    assert len(note.read()) == 1_000


@given(st.binary(max_size=200))
def test_whatever_stands_there_is_read(tmp_path_factory: pytest.TempPathFactory, body: bytes) -> None:
    path = path_of(tmp_path_factory.mktemp("cache"), "a")
    path.parent.mkdir()
    path.write_bytes(body.ljust(SIZE, b"\0"))
    assert isinstance(InHand(path).read(), dict)
