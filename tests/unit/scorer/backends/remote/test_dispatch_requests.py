"""Batches in flight to scripted servers: order, failover, and failures of single events. No network, no sleeping."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorer.backends.base import BackendUnavailable, InferenceFailed
from scorer.backends.remote.dispatch_requests import CHUNK_ROWS, BatchDispatcher, DeclaredTensors, Tensors, VersionNotReady

Code = grpc.StatusCode


class Failure(grpc.RpcError):  # type: ignore[misc]
    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__(code)
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "scripted"


class Servers:
    """Scripted servers that answer x * 10.

    `fails(at, x)` returns the code of a failure, or None. `hold` answers are collected and then returned in reverse order.
    """

    target: Path | None = None

    def __init__(self, fails: Callable[[int, Any], grpc.StatusCode | None] = lambda _at, _x: None, hold: int = 1) -> None:
        self.fails = fails
        self.hold = hold
        self.sent: list[tuple[int, int]] = []
        self.pending: list[tuple[Future[Any], Any]] = []
        self.completed: list[int] = []

    def send(self, at: int, tensors: Tensors, seconds: float) -> Future[Any]:
        assert seconds > 0
        x = tensors["x"]
        self.sent.append((at, len(x)))
        call: Future[Any] = Future()
        if (code := self.fails(at, x)) is not None:
            call.set_exception(Failure(code))
            return call
        self.pending.append((call, x))
        if len(self.pending) >= self.hold:
            for pending_call, answer in reversed(self.pending):
                self.completed.append(int(answer[0, 0]))
                pending_call.set_result(answer)
            self.pending.clear()
        return call

    def read(self, reply: Any) -> Tensors:
        return {"y": reply * 10}

    def unload(self) -> None:
        raise AssertionError("unexpected unload")

    def stated(self, at: int) -> tuple[DeclaredTensors, DeclaredTensors]:
        raise AssertionError(f"unexpected request to server {at}")

    def prepare(self, at: int, seconds: float) -> None:
        assert seconds > 0
        if self.fails(at, np.zeros((1, 1), np.float32)) is not None:
            raise VersionNotReady("scripted")


def rows(count: int) -> Tensors:
    return {"x": np.arange(1, count + 1, dtype=np.float32).reshape(count, 1)}


def create_dispatcher(servers: Servers, count: int = 1) -> BatchDispatcher:
    addresses = [f"server-{k}:1" for k in range(count)]
    return BatchDispatcher(servers, addresses, 0.2, {"x": np.zeros((1, 1), np.float32)})


@given(st.integers(1, 5 * CHUNK_ROWS), st.integers(1, 3))
def test_outputs_of_a_batch_are_complete_and_in_order(count: int, servers: int) -> None:
    inputs = rows(count)
    assert create_dispatcher(Servers(), servers).run(inputs)["y"].tolist() == (inputs["x"] * 10).tolist()


def test_chunks_run_concurrently_and_may_complete_in_any_order() -> None:
    dispatcher = create_dispatcher(servers := Servers(hold=3))
    dispatcher.window.limit = 3.0
    inputs = rows(3 * CHUNK_ROWS)
    assert dispatcher.run(inputs)["y"].tolist() == (inputs["x"] * 10).tolist()
    assert servers.completed == [2 * CHUNK_ROWS + 1, CHUNK_ROWS + 1, 1]


def test_requests_go_to_another_server_while_one_refuses_them() -> None:
    servers = Servers(lambda at, _x: Code.UNAVAILABLE if at == 0 else None)
    dispatcher = create_dispatcher(servers, 2)
    for _ in range(3):
        dispatcher.run(rows(2 * CHUNK_ROWS))
    assert [at for at, size in servers.sent if size > 1].count(0) <= 2
    assert dispatcher.endpoints.all[0].open


@pytest.mark.parametrize("code", [Code.UNAVAILABLE, Code.NOT_FOUND, Code.DEADLINE_EXCEEDED, Code.INTERNAL, Code.CANCELLED])
def test_a_server_without_answers_is_unavailable_and_no_event_fails(code: grpc.StatusCode) -> None:
    is_failing = [False]
    dispatcher = create_dispatcher(servers := Servers(lambda _at, _x: code if is_failing[0] else None))
    dispatcher.run(rows(1))
    is_failing[0] = True
    with pytest.raises(BackendUnavailable, match="server-0:1") as raised:
        dispatcher.run(rows(1))
    assert raised.value.retry_seconds > 0
    assert len(servers.sent) < 20


@pytest.mark.parametrize("code", [Code.INVALID_ARGUMENT, Code.INTERNAL, Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED])
def test_an_event_fails_if_other_events_are_answered(code: grpc.StatusCode) -> None:
    dispatcher = create_dispatcher(Servers(lambda _at, x: code if (x == 7).any() else None))
    dispatcher.run(rows(3))
    with pytest.raises(InferenceFailed, match="scripted"):
        dispatcher.run({"x": np.full((1, 1), 7, np.float32)})
    assert dispatcher.run(rows(3))["y"].shape == (3, 1)


def test_a_refused_batch_of_several_events_is_not_split() -> None:
    servers = Servers(lambda _at, x: Code.INVALID_ARGUMENT if (x == 7).any() else None)
    dispatcher = create_dispatcher(servers)
    with pytest.raises(InferenceFailed):
        dispatcher.run(rows(20))
    assert servers.sent == [(0, 20)]


def test_a_recovered_server_is_probed_and_used_again() -> None:
    is_unavailable = [False]
    now = [0.0]
    servers = Servers(lambda _at, _x: Code.UNAVAILABLE if is_unavailable[0] else None)
    dispatcher = BatchDispatcher(servers, ["a:1"], 0.2, {"x": np.zeros((1, 1), np.float32)}, clock=lambda: now[0])
    dispatcher.run(rows(1))
    is_unavailable[0] = True
    with pytest.raises(BackendUnavailable):
        dispatcher.run(rows(1))
    is_unavailable[0] = False
    now[0] = 60.0
    assert dispatcher.run(rows(2))["y"].tolist() == [[10.0], [20.0]]


def test_missed_deadlines_narrow_the_window() -> None:
    dispatcher = create_dispatcher(Servers(lambda _at, x: Code.DEADLINE_EXCEEDED if len(x) > 100 else None))
    dispatcher.run(rows(1))
    dispatcher.window.limit = 8.0
    with pytest.raises(InferenceFailed):
        dispatcher.run(rows(CHUNK_ROWS))
    assert dispatcher.window.limit < 8.0


def test_outputs_without_a_row_for_each_event_fail() -> None:
    servers = Servers()
    servers.read = lambda reply: {"y": reply[:1]}  # type: ignore[method-assign]
    with pytest.raises(InferenceFailed, match="not one row for each of 5 events"):
        create_dispatcher(servers).run(rows(5))
