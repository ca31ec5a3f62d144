"""Batches in flight to scripted servers: order, other servers, whose fault it was. No network, no sleeping."""

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
    """Answers x * 10. `fails(at, x)` gives the code of a failure, or None. So many answers are held, and given last first."""

    target: Path | None = None

    def __init__(self, fails: Callable[[int, Any], grpc.StatusCode | None] = lambda _at, _x: None, hold: int = 1) -> None:
        self.fails = fails
        self.hold = hold
        self.sent: list[tuple[int, int]] = []
        self.held: list[tuple[Future[Any], Any]] = []
        self.landed: list[int] = []

    def send(self, at: int, tensors: Tensors, seconds: float) -> Future[Any]:
        assert seconds > 0
        x = tensors["x"]
        self.sent.append((at, len(x)))
        call: Future[Any] = Future()
        if (code := self.fails(at, x)) is not None:
            call.set_exception(Failure(code))
            return call
        self.held.append((call, x))
        if len(self.held) >= self.hold:
            for held, answer in reversed(self.held):
                self.landed.append(int(answer[0, 0]))
                held.set_result(answer)
            self.held.clear()
        return call

    def read(self, reply: Any) -> Tensors:
        return {"y": reply * 10}

    def unload(self) -> None:
        raise AssertionError("nothing unloads here")

    def stated(self, at: int) -> tuple[DeclaredTensors, DeclaredTensors]:
        raise AssertionError(f"unexpected request to server {at}")

    def prepare(self, at: int, seconds: float) -> None:
        assert seconds > 0
        if self.fails(at, np.zeros((1, 1), np.float32)) is not None:
            raise VersionNotReady("scripted")


def rows(count: int) -> Tensors:
    return {"x": np.arange(1, count + 1, dtype=np.float32).reshape(count, 1)}


def flight(servers: Servers, count: int = 1) -> BatchDispatcher:
    addresses = [f"server-{k}:1" for k in range(count)]
    return BatchDispatcher(servers, addresses, 0.2, {"x": np.zeros((1, 1), np.float32)})


@given(st.integers(1, 5 * CHUNK_ROWS), st.integers(1, 3))
def test_a_batch_comes_back_whole_and_in_order(count: int, servers: int) -> None:
    given_rows = rows(count)
    assert flight(Servers(), servers).run(given_rows)["y"].tolist() == (given_rows["x"] * 10).tolist()


def test_chunks_fly_side_by_side_and_may_land_in_any_order() -> None:
    one = flight(servers := Servers(hold=3))
    one.window.limit = 3.0
    given_rows = rows(3 * CHUNK_ROWS)
    assert one.run(given_rows)["y"].tolist() == (given_rows["x"] * 10).tolist()
    assert servers.landed == [2 * CHUNK_ROWS + 1, CHUNK_ROWS + 1, 1]


def test_what_one_server_refuses_goes_to_the_other_and_that_one_is_left_alone() -> None:
    servers = Servers(lambda at, _x: Code.UNAVAILABLE if at == 0 else None)
    one = flight(servers, 2)
    for _ in range(3):
        one.run(rows(2 * CHUNK_ROWS))
    assert [at for at, size in servers.sent if size > 1].count(0) <= 2
    assert one.endpoints.all[0].open


@pytest.mark.parametrize("code", [Code.UNAVAILABLE, Code.NOT_FOUND, Code.DEADLINE_EXCEEDED, Code.INTERNAL, Code.CANCELLED])
def test_a_server_that_answers_nothing_is_away_and_no_event_is_blamed(code: grpc.StatusCode) -> None:
    broken = [False]
    one = flight(servers := Servers(lambda _at, _x: code if broken[0] else None))
    one.run(rows(1))
    broken[0] = True
    with pytest.raises(BackendUnavailable, match="server-0:1") as raised:
        one.run(rows(1))
    assert raised.value.retry_seconds > 0
    assert len(servers.sent) < 20


@pytest.mark.parametrize("code", [Code.INVALID_ARGUMENT, Code.INTERNAL, Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED])
def test_an_event_is_blamed_where_others_are_answered(code: grpc.StatusCode) -> None:
    one = flight(Servers(lambda _at, x: code if (x == 7).any() else None))
    one.run(rows(3))
    with pytest.raises(InferenceFailed, match="scripted"):
        one.run({"x": np.full((1, 1), 7, np.float32)})
    assert one.run(rows(3))["y"].shape == (3, 1)


def test_a_refused_batch_of_many_is_for_the_caller_to_split() -> None:
    servers = Servers(lambda _at, x: Code.INVALID_ARGUMENT if (x == 7).any() else None)
    one = flight(servers)
    with pytest.raises(InferenceFailed):
        one.run(rows(20))
    assert servers.sent == [(0, 20)]


def test_a_server_that_is_back_is_probed_and_used_again() -> None:
    away = [False]
    now = [0.0]
    servers = Servers(lambda _at, _x: Code.UNAVAILABLE if away[0] else None)
    one = BatchDispatcher(servers, ["a:1"], 0.2, {"x": np.zeros((1, 1), np.float32)}, clock=lambda: now[0])
    one.run(rows(1))
    away[0] = True
    with pytest.raises(BackendUnavailable):
        one.run(rows(1))
    away[0] = False
    now[0] = 60.0
    assert one.run(rows(2))["y"].tolist() == [[10.0], [20.0]]


def test_missed_deadlines_narrow_the_window() -> None:
    one = flight(Servers(lambda _at, x: Code.DEADLINE_EXCEEDED if len(x) > 100 else None))
    one.run(rows(1))
    one.window.limit = 8.0
    with pytest.raises(InferenceFailed):
        one.run(rows(CHUNK_ROWS))
    assert one.window.limit < 8.0


def test_outputs_without_a_row_for_each_event_fail() -> None:
    servers = Servers()
    servers.read = lambda reply: {"y": reply[:1]}  # type: ignore[method-assign]
    with pytest.raises(InferenceFailed, match="not one row for each of 5 events"):
        flight(servers).run(rows(5))
