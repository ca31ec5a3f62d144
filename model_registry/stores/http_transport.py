"""The network transport of remote registries: an httpx transport that limits the time without progress.

Proxies are taken from the environment (HTTPS_PROXY, NO_PROXY); loopback hosts are reached without a proxy.
"""

# A timeout per read does not detect a peer that sends a single byte now and then. Therefore the time spent waiting for data is
# added up and limited. The sum is reset when PROGRESS_BYTES have arrived and when the next request is sent.

import contextlib
import ipaddress
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpcore
import httpx

from model_registry.errors import Misconfigured
from model_registry.stores.retry import PROGRESS_BYTES

KEEPALIVE_SECONDS = 60.0  # longer than the poll interval, so that a poll needs no TLS handshake
MAX_CONNECTIONS = 16


class ProgressStream(httpcore.NetworkStream):
    """A connection that limits the time spent waiting for each PROGRESS_BYTES of a response."""

    def __init__(self, inner: httpcore.NetworkStream, limit_seconds: float, clock: Callable[[], float]) -> None:
        self._inner = inner
        self._limit = limit_seconds
        self._clock = clock
        self._waited = 0.0
        self._received = 0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002 - the pace's own is shorter
        began = self._clock()
        remaining = self._limit - self._waited
        try:
            data = self._inner.read(max_bytes, remaining) if remaining > 0 else None
        except httpcore.ReadTimeout:
            data = None
        if data is None:
            raise httpcore.ReadTimeout(f"the connection transferred less than {PROGRESS_BYTES} bytes in {self._limit:g} s")
        self._waited += self._clock() - began
        self._received += len(data)
        if self._received >= PROGRESS_BYTES:
            self._waited = 0.0
            self._received = 0
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # the bytes received from here on belong to the next response
        self._waited = 0.0
        self._received = 0
        self._inner.write(memoryview(buffer), timeout)  # type: ignore[arg-type]  # a view, so that a partial write copies nothing

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return ProgressStream(self._inner.start_tls(ssl_context, server_hostname, timeout), self._limit, self._clock)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _ProgressBackend(httpcore.NetworkBackend):
    def __init__(self, limit_seconds: float, clock: Callable[[], float]) -> None:
        self._inner = httpcore.SyncBackend()
        self._limit = limit_seconds
        self._clock = clock

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        return ProgressStream(
            self._inner.connect_tcp(host, port, timeout, local_address, socket_options), self._limit, self._clock
        )


class _ResponseBody(httpx.SyncByteStream):
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __iter__(self) -> Iterator[bytes]:
        with _errors():
            yield from self._inner

    def close(self) -> None:
        self._inner.close()


class RegistryTransport(httpx.BaseTransport):
    """An httpx transport with pools of connections to any number of hosts; threads may share it.

    Every network error is raised as httpx.TransportError.
    """

    def __init__(self, context: ssl.SSLContext, limit_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._backend = _ProgressBackend(limit_seconds, clock)
        self._pools: dict[str, httpcore.ConnectionPool] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        raw = httpcore.Request(
            request.method,
            httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _errors():
            answer = self._pool(url).handle_request(raw)
        return httpx.Response(
            answer.status, headers=answer.headers, stream=_ResponseBody(answer.stream), extensions=dict(answer.extensions)
        )

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def _pool(self, url: httpx.URL) -> httpcore.ConnectionPool:
        proxy = proxy_of(url)
        if proxy not in self._pools:
            self._pools[proxy] = httpcore.ConnectionPool(
                ssl_context=self._context,
                proxy=_proxy(proxy) if proxy else None,
                max_connections=MAX_CONNECTIONS,
                keepalive_expiry=KEEPALIVE_SECONDS,
                network_backend=self._backend,
            )
        return self._pools[proxy]


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def proxy_of(url: httpx.URL) -> str:
    """Return the URL of the proxy that the environment names for a URL; an empty string if there is none."""
    if url.scheme != "https" or is_loopback(url.host) or urllib.request.proxy_bypass(url.host):
        return ""
    return urllib.request.getproxies().get("https", "")


def _proxy(text: str) -> httpcore.Proxy:
    """Parse the value of HTTPS_PROXY. Raises Misconfigured, without the value in the message: it may contain a password."""
    try:
        url = httpx.URL(text if "://" in text else f"http://{text}")
    except httpx.InvalidURL:
        raise Misconfigured("HTTPS_PROXY is not a URL", "escape special characters of a password, such as %2F for /") from None
    auth = (url.username, url.password) if url.username else None
    return httpcore.Proxy(str(url.copy_with(username=None, password=None)), auth=auth)


def trust(ca_file: Path | None) -> ssl.SSLContext:
    """Return a TLS context that trusts the system's CA certificates (or SSL_CERT_FILE's) and those in `ca_file`.

    Raises Misconfigured if `ca_file` cannot be read.
    """
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise Misconfigured(f"the CA file {ca_file}: {error}", "name a file of PEM certificates") from None
    return context


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Convert httpcore's errors into httpx's."""
    try:
        yield
    except httpcore.TimeoutException as error:
        raise httpx.TimeoutException(str(error) or "no answer in time") from error
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, httpcore.UnsupportedProtocol) as error:
        raise httpx.TransportError(str(error) or type(error).__name__) from error
