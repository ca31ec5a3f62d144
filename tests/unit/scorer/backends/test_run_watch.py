"""Runs that take too long are ended; other runs are unaffected."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from scorer.backends.base import InferenceFailed
from scorer.backends.cost_curve import LONGEST_SECONDS, measure_cost_curve
from scorer.backends.onnx.run_timeout import Clock, RunTimeout, cpu_time, wall_time
from tests.support import models

FOR_EVER = 1e9


@dataclass
class Flag:
    terminate: bool = False


def test_a_run_is_ended_after_its_time_limit_and_the_next_run_is_not() -> None:
    now = [0.0]
    watch, options = RunTimeout(FOR_EVER, lambda: lambda: now[0]), Flag()

    def long() -> None:
        watch.check()
        assert not options.terminate
        now[0] += FOR_EVER
        watch.check()
        raise RuntimeError("Exiting due to terminate flag being set to true.")

    with pytest.raises(InferenceFailed, match="did not answer within"):
        watch(options, long)
    now[0] += FOR_EVER
    watch.check()
    assert watch(options, lambda: options.terminate) is False
    with pytest.raises(ZeroDivisionError):  # another failure is raised unchanged
        watch(options, lambda: 1 // 0)


@pytest.mark.parametrize("clock", [cpu_time, wall_time])
def test_a_model_that_does_not_end_by_itself_is_ended(tmp_path: Path, clock: Callable[[], Clock]) -> None:
    models.moody(tmp_path / "m.onnx")
    session = ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    watch, options = RunTimeout(0.2, clock), ort.RunOptions()

    def scored(b: float) -> Callable[[], object]:
        x = np.array([[1, b]], np.float32)
        return lambda: np.asarray(session.run(["y"], {"x": x}, options)[0]).tolist()

    for _ in range(2):
        with pytest.raises(InferenceFailed, match=r"0\.2 s"):
            watch(options, scored(1e15))
        assert watch(options, scored(3)) == [[0.0]]


def test_the_time_of_another_thread_that_waits_does_not_pass() -> None:
    clocks, can_end = list[Clock](), threading.Event()

    def wait() -> None:
        clocks.append(cpu_time())
        can_end.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    while not clocks:
        can_end.wait(0.01)
    start = time.monotonic()
    while time.monotonic() < start + 0.2:
        sum(range(1_000))
    assert clocks[0]() < 0.1
    can_end.set()
    thread.join()


def test_the_watch_ends_with_its_owner() -> None:
    before = set(threading.enumerate())
    watch = RunTimeout(0.01, wall_time)
    (thread,) = set(threading.enumerate()) - before
    del watch
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_a_cost_curve_ends_before_sizes_that_take_too_long() -> None:
    now, runs = [0.0], list[int]()

    def run(size: int) -> None:
        runs.append(size)
        now[0] += 0.1 * size

    curve = measure_cost_curve((1, 4, 16, 64), run, rounds=2, clock=lambda: now[0])
    assert curve == pytest.approx({1: 0.1, 4: 0.4, 16: 1.6})
    assert LONGEST_SECONDS < 0.1 * 64
    assert runs == [1] * 3 + [4] * 3 + [16] * 3


def test_a_cost_curve_ends_before_sizes_that_are_too_large() -> None:
    def run(size: int) -> None:
        if size > 4:
            raise MemoryError

    assert list(measure_cost_curve((1, 4, 16, 64), run, too_large=(MemoryError,))) == [1, 4]
    with pytest.raises(MemoryError):
        measure_cost_curve((16, 64), run, too_large=(MemoryError,))
    with pytest.raises(MemoryError):
        measure_cost_curve((1, 16), run)
