"""The output of `nvidia-smi` becomes figures; without the program there are none."""

import os
from pathlib import Path

import pytest

from tests.benchmarks.gpu.card import Card
from tests.support.waiting import until

OUTPUT_LINES = ["0, 500", "[N/A], [N/A]", "0, 900", "50, 1500", "100, 2500", "0, 2000"]


def test_the_busy_time_and_the_memory_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    lines = "".join(f"echo '{line}'\n" for line in OUTPUT_LINES)
    program.write_text(f"#!/bin/sh\n{lines}exec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with Card() as card:
        until(lambda: card.figures().get("gpu_mib") == 2_000.0, "the figures of all lines")
    assert card.figures() == {"gpu_busy": 0.75, "gpu_mib": 2_000.0}


def test_without_a_card_there_are_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with Card() as card:
        pass
    assert card.figures() == {}
