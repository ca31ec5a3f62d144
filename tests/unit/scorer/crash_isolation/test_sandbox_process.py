"""The wait of a worker for its sandbox process."""

import multiprocessing
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from model_registry import package
from publisher.errors import Aborted
from publisher.runtime.context import Context
from scorer.crash_isolation.sandbox_process import SandboxProcess
from tests.support import models
from tests.unit.scorer.minimal import minimal


def rows(a: float, b: float) -> dict[str, np.ndarray]:
    return {"x": np.array([[a, b]], np.float32)}


def test_a_stop_ends_the_wait_for_an_answer_and_no_later_request_gets_the_aborted_answer(tmp_path: Path) -> None:
    stopping = threading.Event()

    def raise_if_stopping() -> None:
        if stopping.is_set():
            raise Aborted("a stop was requested")

    folder = models.linear_package(tmp_path / "m", 2.0)
    sandbox = SandboxProcess(minimal(), Context(raise_if_cancelled=raise_if_stopping))
    try:
        model = sandbox.load(package.read(folder, name="m", version="1", digest="sha256:" + "0" * 64)).model
        (child,) = multiprocessing.active_children()
        assert child.pid is not None
        os.kill(child.pid, signal.SIGSTOP)
        stopping.set()
        with pytest.raises(Aborted, match="a stop was requested"):
            model.run(rows(1.0, 0.0))
        stopping.clear()
        assert model.run(rows(2.0, 1.0))["y"] == pytest.approx(6.0)
    finally:
        sandbox.close()
