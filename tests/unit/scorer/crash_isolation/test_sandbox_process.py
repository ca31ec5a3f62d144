"""The wait of a worker for its sandbox process."""

import logging
import multiprocessing
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from model_registry import package
from publisher.errors import Aborted
from publisher.runtime.abandonable_call import call_in_thread
from publisher.runtime.context import Context
from publisher.runtime.dependency_wait import DependencyUnavailable
from scorer.backends.base import ModelRefused
from scorer.crash_isolation.sandbox_process import SandboxProcess, SandboxProcessDied
from scorer.decoding.record_metadata import ListedMetadata
from tests.support import hostile_models, models
from tests.support.dict_tables import DictTables
from tests.support.waiting import until
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


def test_a_close_does_not_wait_for_a_fork_server_that_starts_no_process(tmp_path: Path) -> None:
    folder = models.linear_package(tmp_path / "m", 2.0)
    sandbox = SandboxProcess(minimal(), Context())
    model = sandbox.load(package.read(folder, name="m", version="1", digest="sha256:" + "0" * 64)).model
    (child,) = multiprocessing.active_children()
    fork_server = psutil.Process(child.pid).parent()
    assert fork_server is not None
    child.kill()
    with pytest.raises(SandboxProcessDied):
        model.run(rows(1.0, 0.0))

    def starts_a_process() -> bool:
        frames = sys._current_frames().values()
        return any(frame.f_code.co_filename.endswith("multiprocessing/forkserver.py") for frame in frames)

    fork_server.suspend()
    try:
        request = call_in_thread("request", lambda: model.run(rows(1.0, 0.0)))
        until(starts_a_process, "the wait for the fork server")
        sandbox.close()
        assert not request.done()
    finally:
        fork_server.resume()
    with pytest.raises(DependencyUnavailable, match="loaded into this process again"):
        request.result()


def test_events_of_the_sandbox_are_joined_with_the_tables_of_the_worker(tmp_path: Path) -> None:
    folder = models.joined_package(tmp_path / "m", 2.0)
    tables = DictTables({"customers": {(3, b"k"): {"b": 5.0}}})
    sandbox = SandboxProcess(minimal(tables={"customers": {"topic": "customers", "key": "c"}}), Context(), tables)
    try:
        loaded = sandbox.load(package.read(folder, name="m", version="1", digest="sha256:" + "0" * 64))
        metadata = ListedMetadata([None, None], [0, 0], [None, None], [3, 3])
        decoded = loaded.decoder.decode([b'{"a": 1, "c": "k"}', b'{"a": 1, "c": "-"}'], metadata)
    finally:
        sandbox.close()
    assert (decoded.rows, decoded.tensors["x"].tolist()) == ([0], [[1.0, 5.0]])
    assert "the table customers has no row with the key '-'" in str(decoded.rejected[1])


@pytest.mark.parametrize(
    ("tables", "message"), [({}, "add tables.customers"), ({"customers": {"topic": "c"}}, "this command reads no tables")]
)
def test_a_version_without_its_tables_is_refused_in_the_sandbox(tmp_path: Path, tables: dict[str, Any], message: str) -> None:
    folder = models.joined_package(tmp_path / "m", 2.0)
    sandbox = SandboxProcess(minimal(tables=tables), Context())
    try:
        with pytest.raises(ModelRefused, match=message):
            sandbox.load(package.read(folder, name="m", version="1", digest="sha256:" + "0" * 64))
    finally:
        sandbox.close()


def test_a_version_that_kills_two_sandbox_processes_at_its_load_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    folder = hostile_models.package(tmp_path / "m", hostile_models.deep_tree)
    sandbox = SandboxProcess(minimal(), Context())
    try:
        with pytest.raises(
            ModelRefused,
            match=r"^two processes in a row failed while they loaded this version; the last one was ended by SIGSEGV$",
        ):
            sandbox.load(package.read(folder, name="m", version="7", digest="sha256:" + "0" * 64))
        assert multiprocessing.active_children() == []
    finally:
        sandbox.close()
    retries = [record.message for record in caplog.records if record.message.endswith("retrying")]
    assert retries == ["the sandbox process was ended by SIGSEGV while it loaded version 7; retrying"]
