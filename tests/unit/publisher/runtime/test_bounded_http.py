"""A health port with idle, slow or hostile clients, and in a process without free descriptors."""

import contextlib
import http.client
import json
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest
from prometheus_client import CollectorRegistry, Gauge

from publisher.errors import USAGE, Fatal
from publisher.runtime.bounded_http import CONNECTIONS, HEAD_BYTES, MIN_CONNECTIONS, BoundedHttpServer, connection_limit
from publisher.runtime.health import HealthServer
from tests.support.flood import ConnectionFlood, Style
from tests.support.waiting import STEP_SECONDS, until


def registry() -> CollectorRegistry:
    collectors = CollectorRegistry()
    Gauge("answers", "", registry=collectors).set(42)
    return collectors


@pytest.fixture
def server() -> Iterator[HealthServer]:
    collectors = HealthServer("127.0.0.1:0", registry(), lambda: None, lambda: "not yet")
    with contextlib.closing(collectors):
        yield collectors


def send_request(server: HealthServer, path: str, method: str = "GET", **more: object) -> tuple[int, bytes]:
    with contextlib.closing(http.client.HTTPConnection(server.address, timeout=STEP_SECONDS)) as connection:
        connection.request(method, path, **more)  # type: ignore[arg-type]
        answer = connection.getresponse()
        return answer.status, answer.read()


def connected(server: HealthServer) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=STEP_SECONDS)


def sent(client: socket.socket, data: bytes) -> bool:
    """Send data, and return whether the connection was still open."""
    try:
        client.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def rest(client: socket.socket) -> bytes:
    """Receive bytes until the server closes the connection."""
    received = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65_536):
            received += part
    return bytes(received)


def test_the_routes_answer(server: HealthServer) -> None:
    assert send_request(server, "/livez") == (200, b'{"status": "ok", "reason": null}\n')
    status, content = send_request(server, "/readyz")
    assert (status, json.loads(content)["reason"]) == (503, "not yet")
    status, content = send_request(server, "/metrics")
    assert (status, b"answers 42.0" in content) == (200, True)
    assert send_request(server, "/")[0] == 404
    assert send_request(server, "/livez", "POST", body=b"x" * 1_000_000)[0] == 405


@pytest.mark.parametrize("style", Style)
def test_a_flood_of_one_kind_does_not_silence_it(server: HealthServer, style: Style) -> None:
    with ConnectionFlood(server.address, 300, [style]) as flood:
        assert flood.full.wait(STEP_SECONDS)
        assert [send_request(server, path)[0] for path in ("/livez", "/readyz", "/metrics")] == [200, 503, 200]


def test_at_the_limit_the_oldest_connection_is_closed_for_a_new_one(server: HealthServer) -> None:
    with contextlib.ExitStack() as closing:
        clients = [closing.enter_context(connected(server)) for _ in range(CONNECTIONS + 1)]
        assert rest(clients[0]) == b""
        clients[-1].sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        assert rest(clients[-1]).startswith(b"HTTP/1.0 200")


def test_an_incomplete_request_is_abandoned_although_bytes_arrive() -> None:
    server = BoundedHttpServer("127.0.0.1", 0, lambda *_: b"", read_seconds=0.5)
    with contextlib.closing(server), socket.create_connection(("127.0.0.1", server.port), timeout=0.05) as client:

        def closed() -> bool:
            try:
                return client.recv(1) == b""
            except TimeoutError:
                return not sent(client, b"x")
            except ConnectionResetError:  # the server closed before it had read the last byte
                return True

        until(closed, "the end of the connection")


def test_headers_without_an_end_are_rejected(server: HealthServer) -> None:
    with connected(server) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES)
        assert rest(client).startswith(b"HTTP/1.0 431")


@pytest.mark.parametrize(
    "head", [b"\r\n\r\n", b"\0\xff\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"GET /\r\nA\r\n\r\n"]
)
def test_an_invalid_request_does_not_affect_others(server: HealthServer, head: bytes) -> None:
    with connected(server) as client:
        client.sendall(head)
        rest(client)
    assert send_request(server, "/livez")[0] == 200


def test_the_first_of_pipelined_requests_is_answered_completely(server: HealthServer) -> None:
    with connected(server) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\n\r\n" * 1_000)
        client.shutdown(socket.SHUT_WR)
        content = rest(client)
    assert content.count(b"HTTP/1.0 200") == 1
    assert content.endswith(b'"reason": null}\n')


def test_a_check_that_raises_is_an_answer_of_500() -> None:
    def fails() -> None:
        raise RuntimeError("no")

    with contextlib.closing(HealthServer("127.0.0.1:0", registry(), fails, lambda: None)) as server:
        assert send_request(server, "/livez")[0] == 500
        assert send_request(server, "/readyz")[0] == 200


def test_no_connection_outlives_the_server() -> None:
    server = HealthServer("127.0.0.1:0", registry(), lambda: None, lambda: None)
    with connected(server) as client:
        until(lambda: send_request(server, "/livez")[0] == 200, "an answer")
        server.close()
        assert rest(client) == b""


@pytest.mark.parametrize("listen", ["127.0.0.1:99999", "192.0.2.1:0"])
def test_an_address_that_cannot_be_listened_on_is_named(listen: str) -> None:
    with pytest.raises(Fatal, match=f"cannot listen on http.listen {listen}: ") as content:
        HealthServer(listen, registry(), lambda: None, lambda: None)
    assert content.value.exit_code == USAGE


def test_connections_take_an_eighth_of_the_descriptors_at_most() -> None:
    limits = [connection_limit(limit) for limit in (16, 256, 1_024, 1_048_576, resource.RLIM_INFINITY)]
    assert limits == [MIN_CONNECTIONS, 32, CONNECTIONS, CONNECTIONS, CONNECTIONS]


EXHAUSTED = """
import os, resource, sys
from prometheus_client import CollectorRegistry
from publisher.runtime.health import HealthServer

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
server = HealthServer("127.0.0.1:0", CollectorRegistry(), lambda: None, lambda: None)
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError as error:
    print(server.address, error.errno, flush=True)
sys.stdin.read()
"""


def test_a_process_without_descriptors_answers_and_does_not_spin() -> None:
    process = subprocess.Popen([sys.executable, "-c", EXHAUSTED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[0]
        host, _, port = address.rpartition(":")
        with contextlib.ExitStack() as closing:
            for _ in range(20):
                closing.enter_context(socket.create_connection((host, int(port)), timeout=STEP_SECONDS))
            began, used = time.monotonic(), sum(psutil.Process(process.pid).cpu_times()[:2])
            for _ in range(20):
                with contextlib.closing(http.client.HTTPConnection(address, timeout=STEP_SECONDS)) as connection:
                    connection.request("GET", "/livez")
                    assert connection.getresponse().status == 200
            until(lambda: time.monotonic() - began > 1.0, "a second")
            used = sum(psutil.Process(process.pid).cpu_times()[:2]) - used
            assert used < 0.5 * (time.monotonic() - began)
        process.communicate("")


def test_a_server_that_was_closed_can_be_closed_again(server: HealthServer) -> None:
    server.close()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        connected(server)
