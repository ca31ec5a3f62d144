"""The console's server with idle connections still serves pages and streams."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from scorer.console import connection_limits
from scorer.console.connection_limits import CONNECTIONS, BoundedProtocol
from tests.support.flood import ConnectionFlood, Style
from tests.support.waiting import STEP_SECONDS, until


@pytest.fixture
def address() -> Iterator[str]:
    """Run a server of a page and of a stream that ends with the server."""
    server: uvicorn.Server

    def page(_: Request) -> PlainTextResponse:
        return PlainTextResponse("here")

    def stream(_: Request) -> StreamingResponse:
        async def ticks() -> AsyncIterator[bytes]:
            while not server.should_exit:
                yield b"tick\n"
                await asyncio.sleep(0.05)

        return StreamingResponse(ticks())

    app = Starlette(routes=[Route("/", page), Route("/stream", stream)])
    server = uvicorn.Server(uvicorn.Config(app, http=BoundedProtocol, log_level="warning", timeout_graceful_shutdown=1))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listener.close()


def test_connection_flood_blocks_neither_pages_nor_streams(address: str) -> None:
    with httpx.stream("GET", f"http://{address}/stream", timeout=STEP_SECONDS) as stream:
        ticks = stream.iter_lines()
        assert next(ticks) == "tick"
        idle = [style for style in Style if style is not Style.PIPELINED]
        with ConnectionFlood(address, 2 * CONNECTIONS, idle) as flood:
            assert flood.full.wait(STEP_SECONDS)
            assert httpx.get(f"http://{address}/", timeout=STEP_SECONDS).text == "here"
            until(lambda: flood.closed >= CONNECTIONS, "connections that are closed for newer ones")
            assert next(ticks) == "tick"


def test_connection_without_a_complete_request_is_closed_also_between_requests(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "READ_SECONDS", 0.5)
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as closing:
        for request, response_count in ((b"", 0), (b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HT", 1)):
            client = closing.enter_context(socket.create_connection((host, int(port)), timeout=STEP_SECONDS))
            client.sendall(request)
            received = b""
            with contextlib.suppress(ConnectionResetError):
                while part := client.recv(65_536):
                    received += part
            assert received.count(b"here") == response_count
