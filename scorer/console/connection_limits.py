"""Limits of the console's HTTP connections: their number, and the time to send a request.

uvicorn has no suitable limits. Its setting `limit_concurrency` also counts idle connections, and rejects all requests at the
limit. Its keep-alive time-out starts only after the first response, and ends at the next received byte.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 100
READ_SECONDS = 10.0  # for a request's head, since the connection was opened or the previous response ended


class BoundedProtocol(H11Protocol):
    """An HTTP protocol that closes a connection if no request arrives within READ_SECONDS.

    If there are more than CONNECTIONS connections, it closes the one that has been idle for longest.
    """

    # If no connection is idle, it closes one whose response is in progress: the response can be a stream of changes that lasts
    # for hours.

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._waits_since = 0.0
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def responding(self) -> bool:
        """Whether a request was received and its response is in progress."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit for the first request. If too many connections are open, close the one idle for longest."""
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > CONNECTIONS:
            others = [each for each in self.connections if isinstance(each, BoundedProtocol) and each is not self]
            min(others, key=lambda each: (each.responding, each._waits_since)).abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limit of the next request."""
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Start the time limit of the next request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._await_request()

    def abort(self) -> None:
        """Close the connection at once and discard unwritten data."""
        self.connections.discard(self)
        self.transport.abort()

    def _await_request(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._waits_since = self.loop.time()
        self._deadline = self.loop.call_later(READ_SECONDS, self._expire)

    def _expire(self) -> None:
        if not self.responding:
            self.abort()
