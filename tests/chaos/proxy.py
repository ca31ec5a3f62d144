"""TCP proxies in front of brokers: connections are cut, slowed, or blocked half open; one EndTxn is delivered late.

One thread runs them all; the switches may be set from any thread.
"""

import asyncio
import contextlib
import struct
import threading
from collections.abc import Coroutine
from typing import Any

from scorer.demo.broker.kraft_config import HOST
from tests.chaos.stray import TXN_OFFSET_COMMIT, Action, StrayEndTxn

CHUNK = 65_536
LATE_SECONDS = 0.05  # between the append of the records and the stray request


class Proxies:
    """One listener for each upstream port given to `connect`, on `ports`. Earlier connections are closed.
    `stray_before`: see `stray.py`."""

    def __init__(self, count: int, stray_before: int = TXN_OFFSET_COMMIT) -> None:
        self.stray = StrayEndTxn(stray_before)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()
        self._upstream = [0] * count
        self._writers: set[asyncio.StreamWriter] = set()
        self._delay = 0.0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._servers = [self._call(self._listen(k)) for k in range(count)]
        self.ports: list[int] = [server.sockets[0].getsockname()[1] for server in self._servers]

    def connect(self, upstream: list[int]) -> None:
        """Set the ports of the brokers, in the order of `ports`."""
        self._upstream = upstream

    def cut(self) -> None:
        """Close every connection. New ones are served, and held data flows again."""
        self._loop.call_soon_threadsafe(self._cut)

    def slow(self, seconds: float) -> None:
        """Delay every chunk in both directions by `seconds`; 0 ends the delay."""
        self._delay = seconds

    def hold(self) -> None:
        """Block all data on open connections until `cut`."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def hold_end_txn(self) -> None:
        """Hold the next EndTxn and deliver it late."""
        self._loop.call_soon_threadsafe(self.stray.order)

    def heal(self) -> None:
        self._delay = 0.0
        self._loop.call_soon_threadsafe(self._flowing.set)

    def close(self) -> None:
        self.heal()
        self._loop.call_soon_threadsafe(self._cut)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def _cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()
        self._flowing.set()

    async def _listen(self, number: int) -> asyncio.Server:
        return await asyncio.start_server(lambda reader, writer: self._serve(number, reader, writer), HOST, 0)

    async def _serve(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection(HOST, self._upstream[number])
        except OSError:
            writer.transport.abort()
            return
        writers = {writer, up_writer}
        self._writers |= writers
        directions = [
            asyncio.ensure_future(self._requests(reader, up_writer)),
            asyncio.ensure_future(self._answers(up_reader, writer)),
        ]
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        for direction in directions:
            direction.cancel()
        for peer in writers:
            peer.transport.abort()
        self._writers -= writers

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward whole requests from client to broker, until the connection ends or a request is held."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(4)
                frame = await reader.readexactly(struct.unpack(">i", head)[0])
                await self._pause()
                action = self.stray.request(frame)
                if action is Action.HOLD:
                    return
                if action is Action.STRAY_FIRST:
                    await self._deliver_late(self.stray.let_go())
                writer.write(head + frame)
                await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK):
                await self._pause()
                writer.write(chunk)
                await writer.drain()

    async def _pause(self) -> None:
        if self._delay:
            await asyncio.sleep(self._delay)
        await self._flowing.wait()

    async def _deliver_late(self, frame: bytes) -> None:
        """Send the frame to every broker and wait for each response. Only the coordinator acts on it."""
        await asyncio.sleep(LATE_SECONDS)
        for port in self._upstream:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(struct.pack(">i", len(frame)) + frame)
                await asyncio.wait_for(reader.readexactly(4), 2)
                writer.close()
