"""Sends HTTP requests to one OCI registry, with credentials, redirects to allowed URLs, and retries.

The module does not depend on what the requests transfer, such as blobs or manifests.
"""

import itertools
import os
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import httpx

from model_registry.errors import Corrupt, Denied, Misconfigured, Refused, RegistryError, Unreachable
from model_registry.stores import auth, http_transport, retry
from model_registry.stores.base import StoreOptions
from model_registry.stores.retry import AttemptLimit, Timing
from model_registry.untrusted_input import json_documents
from model_registry.untrusted_input.terminal_text import printable

MAX_ERROR = 16 << 10  # bytes that are read of an error response
PIECE = 256 << 10  # largest number of bytes that one decompression step returns


_TAG = re.compile(r"<[^>]*>")
_TITLE = re.compile(r"<title>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_OR_ZLIB = 47  # zlib: 32 for either header, and the largest window


@dataclass(frozen=True, slots=True)
class OciResponse:
    """A response that was read from `url`. A body that is too long is cut to one byte more than the reader's limit."""

    status: int
    headers: httpx.Headers
    url: httpx.URL
    body: bytes

    @property
    def reason(self) -> str:
        """The registry's error message as text to append: a colon and one line; empty if the body has no message."""
        text = _error_message(self.body)
        return f": {printable(text):.300}" if text else ""

    def location(self) -> httpx.URL:
        """Return the absolute URL in the Location header. Raises Corrupt if the header is missing or invalid."""
        text = self.headers.get("Location", "")
        with suppress(httpx.InvalidURL):
            if text:
                return self.url.join(text)
        raise Corrupt(f"{self.url.host} answered {self.status} with the Location {text!r:.200}, which is not a valid URL")

    def error(self, doing: str) -> RegistryError:
        """Return the RegistryError for this unsuccessful response; `doing` describes the request, such as "GET of X"."""
        message = f"{self.url.host} answered {self.status} to {doing}{self.reason}"
        if self.status in (401, 403):
            return Denied(message, f"docker login {self.url.netloc.decode()}, with an account that may do it")
        if self.status == 413:
            hint = (
                "raise the limit on the size of requests of the registry or the proxy before it (nginx: client_max_body_size)"
            )
            return Refused(message, hint)
        if self.status >= 500 or self.status in retry.STATUSES:
            return Unreachable(message, "try again later, or look into the registry's log")
        return Refused(message, "the registry rejects this request; the registry's log has the cause")


def _error_message(body: bytes) -> str:
    """Return the message in the body of an error response: OCI's error JSON, other JSON, an HTML page or plain text."""
    try:
        document = json_documents.ANY.decode(body)
    except json_documents.UnreadableDocument:
        page = body[:2_000].decode(errors="replace")
        title = _TITLE.search(page)
        return " ".join((title[1] if title else _TAG.sub(" ", page)).split())
    listed = document.get("errors") if isinstance(document, dict) else None
    errors = listed if isinstance(listed, list) else [document]
    return "; ".join(filter(None, map(_error_text, errors[:3])))


def _error_text(error: object) -> str:
    if isinstance(error, str):
        return error
    if not isinstance(error, dict):
        return ""
    parts = (error.get("code"), error.get("message") or error.get("details") or error.get("error"))
    return " ".join(str(part) for part in parts if isinstance(part, str | int))


def content_encoding(response: httpx.Response) -> str:
    """Return the Content-Encoding of a response in lower case; an empty string if the body is not encoded.

    A proxy may encode a response although the client has not asked for it.
    """
    stated = str(response.headers.get("Content-Encoding", "")).strip().lower()
    return "" if stated == "identity" else stated


def decoded_body(response: httpx.Response) -> Iterator[bytes]:
    """Yield the decoded body of a response, in pieces of at most PIECE bytes.

    Raises:
        Corrupt: The encoding is neither gzip nor deflate, or the body cannot be decoded.
        httpx.TransportError: The connection failed.
    """
    # A body that does not start with gzip's magic number is returned unchanged, even if the header states gzip, because some
    # mirrors decode the content but keep the header.
    stated = content_encoding(response)
    chunks = response.iter_raw()
    if not stated:
        yield from chunks
        return
    if stated not in ("gzip", "x-gzip", "deflate"):
        raise Corrupt(f"{response.url.host} answers in the content encoding {stated!r:.40}, which was not requested")
    begin = b""
    while len(begin) < len(_GZIP_MAGIC) and (chunk := next(chunks, None)) is not None:
        begin += chunk
    chunks = itertools.chain([begin], chunks)
    if stated != "deflate" and not begin.startswith(_GZIP_MAGIC):
        yield from chunks
        return
    yield from _decoded(chunks, f"{response.url.host} sends", stated)


def _decoded(chunks: Iterator[bytes], description: str, stated: str) -> Iterator[bytes]:
    decoder = zlib.decompressobj(_GZIP_OR_ZLIB)
    received = 0
    try:
        for chunk in chunks:
            rest = chunk
            received = received + len(chunk)
            while rest and not decoder.eof:
                yield decoder.decompress(rest, PIECE)
                rest = decoder.unconsumed_tail
        yield decoder.flush()
    except zlib.error as error:
        raise Corrupt(f"{description} a damaged {stated} stream: {error}") from None
    if received and not decoder.eof:
        raise Corrupt(f"{description} a {stated} stream without its end")


def read_response(response: httpx.Response, limit: int = MAX_ERROR) -> OciResponse:
    """Read a response with at most `limit` + 1 bytes of its body.

    Raises AttemptFailed if the connection fails, and Corrupt if the body of a successful response cannot be decoded.
    """
    data = bytearray()
    try:
        for chunk in decoded_body(response):
            data += chunk
            if len(data) > limit:
                break
    except httpx.TransportError as error:
        raise attempt_failed(error) from error
    except Corrupt:
        if response.is_success:
            raise
        data.clear()  # the status suffices
    return OciResponse(response.status_code, response.headers, response.url, bytes(data[: limit + 1]))


DOCKER_HUB = "docker.io"
DOCKER_HUB_API = "registry-1.docker.io"
MAX_REDIRECTS = 5
MAX_TOKEN_ANSWER = 64 << 10
HIDING = frozenset({401, 403, 404})  # statuses that may change with credentials
USER_AGENT = "scorestream-model-registry"

Body = Callable[[], Iterable[bytes]]
"""A function that returns the bytes to send. Every call returns them from the start."""


@dataclass(frozen=True, slots=True)
class OciRequest:
    """One HTTP request to a registry.

    Attributes:
        url: A path on the registry, or an absolute URL.
        scopes: The scopes that the access token must have, such as `repository:team/model:pull`.
        size: The size of the body in bytes.
    """

    method: str
    url: str | httpx.URL
    scopes: tuple[str, ...]
    headers: dict[str, str] = field(default_factory=dict)
    body: Body | None = None
    size: int = 0


class AttemptFailed(Exception):
    """An attempt at a request failed, but another attempt may succeed.

    `retry_after` is the delay in seconds that the registry requests; None if it requests none.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class OciClient:
    """An HTTP client for one registry. Threads may share it; `host` is the registry as `host` or `host:port`."""

    def __init__(self, host: str, options: StoreOptions, timing: Timing) -> None:
        """Create the client without connecting. Raises Misconfigured."""
        self._plain = options.plain_http
        is_plain = self._is_plain(httpx.URL(f"http://{host}"))
        if options.plain_http is True and not is_plain:
            remedy = f"model.plain_http: ['{host}'], or --plain-http-host {host}, if the network is private"
            raise Misconfigured(
                f"plain HTTP to {host} is not allowed, because it is another machine", f"use TLS, or allow it: {remedy}"
            )
        self.host = host
        self.timing = timing
        self._limit = options.timeout_seconds
        self._origin = httpx.URL(f"{'http' if is_plain else 'https'}://{DOCKER_HUB_API if host == DOCKER_HUB else host}")
        self._client = httpx.Client(
            transport=http_transport.RegistryTransport(http_transport.trust(options.ca_file), self._limit),
            timeout=self._limit,
            trust_env=False,
            headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        )
        self._challenge: str | None = None
        self._auth = auth.Authenticator(host, self._origin, auth.realm_hosts(os.environ), self._fetch, timing.clock)

    def request(self, call: OciRequest, limit: int = MAX_ERROR) -> OciResponse:
        """Send a request, with retries, and return the response with at most `limit` + 1 bytes of its body.

        Call this only for requests that may be repeated.

        Raises:
            Unreachable: Every attempt failed, or got a response with one of `retry.STATUSES`.
        """
        attempts = self.new_attempt_limit()
        while True:
            try:
                return self.request_once(call, limit)
            except AttemptFailed as failure:
                self.wait(attempts, failure)

    def request_once(self, call: OciRequest, limit: int = MAX_ERROR) -> OciResponse:
        """Make one attempt at a request, and return the response with at most `limit` + 1 bytes of its body.

        Raises AttemptFailed if another attempt may succeed.
        """
        # A throttled request (429) is repeated within the attempt.
        with self.stream(call) as response:
            return read_response(response, limit)

    @contextmanager
    def stream(self, call: OciRequest) -> Iterator[httpx.Response]:
        """Make one attempt at a request and yield the response before its body is read.

        Raises AttemptFailed if another attempt may succeed. Reading the body may raise httpx.TransportError.
        """
        # A throttled request (429) is repeated within the attempt.
        with _closed(self._attempt(call)) as response:
            yield response

    def new_attempt_limit(self) -> AttemptLimit:
        """Return a new limit for the attempts at one request, to pass to `wait` after each failed attempt."""
        return AttemptLimit(self._limit, self.timing.clock())

    def wait(self, attempts: AttemptLimit, failure: AttemptFailed) -> None:
        """Sleep before the next attempt. Raises Unreachable if the limit allows no further attempt."""
        delay = attempts.delay(self.timing.clock(), self.timing.draw_random(), failure.retry_after)
        if delay is None:
            hint = "check the address, the network and the registry"
            if failure.retry_after is not None:
                hint = f"the registry asks to wait with the next request for {failure.retry_after:g} s"
            raise Unreachable(f"{self.host}: {failure}", hint) from failure
        self.timing.sleep(delay)

    def allowed(self, url: httpx.URL) -> httpx.URL:
        """Return a URL from a response of the registry, if the client may request it. Raises Refused if not."""
        # A registry behind a proxy that terminates TLS names its own URL with http; the returned URL then has https.
        url = self._secured(url)
        is_plain = url.scheme == "http" and self._origin.scheme == "http" and self._is_plain(url)
        if not (is_plain or url.scheme == "https") or not url.host or url.userinfo:
            raise Refused(
                f"{self.host} answers with the URL {str(url)!r:.200}, which is not allowed",
                "the client requests only https URLs without a user name",
            )
        return url

    def next_page(self, answer: OciResponse) -> httpx.URL | None:
        """Return the URL of a list's next page, from the Link header; None if there is no next page.

        Raises Corrupt if the link names another host.
        """
        # Only the query of the link is used. Behind a proxy, its path and port may be valid only on the other side.
        if answer.status != 200 or "Link" not in answer.headers:
            return None
        text = httpx.Response(200, headers={"Link": answer.headers["Link"]}).links.get("next", {}).get("url")
        if text is None:
            return None
        try:
            url = answer.url.join(text)
        except httpx.InvalidURL:
            raise Corrupt(f"{self.host} has the next page of its list at {text!r:.200}, which is not a valid URL") from None
        if not self.is_own(self._secured(url)):
            raise Corrupt(f"{self.host} has the next page of its list at another host, {url.host}")
        return answer.url.copy_with(query=url.query)

    def _is_plain(self, url: httpx.URL) -> bool:
        if isinstance(self._plain, bool):
            return self._plain and http_transport.is_loopback(url.host)
        return url.netloc.decode() in self._plain

    def _secured(self, url: httpx.URL) -> httpx.URL:
        return auth.upgrade_to_https(url, self._origin) if url.host == self._origin.host else url

    def is_own(self, url: httpx.URL) -> bool:
        """Return whether a URL is on the registry's own origin, so that it may receive credentials."""
        return (url.scheme, url.netloc) == (self._origin.scheme, self._origin.netloc)

    def _attempt(self, call: OciRequest) -> httpx.Response:
        """Send a request and return the first response that no rate limit rejected.

        Raises:
            AttemptFailed: The connection failed, or another attempt may succeed.
            Unreachable: The rate limit rejects every attempt.
        """
        throttled = AttemptLimit(self._limit, self.timing.clock(), retry.MAX_THROTTLED)
        while _is_throttled(response := self._redirected(call)):
            self.wait(throttled, _retry_later(response, "it"))
        if response.status_code in retry.STATUSES:
            raise _retry_later(response, "it")
        return response

    def _redirected(self, call: OciRequest) -> httpx.Response:
        """Send a request, answer an authentication challenge, follow redirects, and return the final response.

        Raises AttemptFailed.
        """
        url = self._origin.join(call.url)
        for _ in range(MAX_REDIRECTS):
            response = self._authenticated(call, self.allowed(url))
            if not response.has_redirect_location:
                break
            with _closed(response):
                if call.method not in ("GET", "HEAD"):
                    raise Refused(
                        f"{self.host} redirects {call.method} {url.path}, but only GET and HEAD requests may be redirected",
                        "check the address of the registry, and the proxy before it",
                    )
                url = read_response(response).location()
        else:
            raise Refused(f"{self.host} redirects {call.url} more than {MAX_REDIRECTS} times")
        return response

    def _authenticated(self, call: OciRequest, url: httpx.URL) -> httpx.Response:
        if not self.is_own(url):
            return self._send(call, url, None)
        sent = self._auth.header(call.scopes)
        if sent is None and self._challenge and self._auth.answer(self._challenge, call.scopes, sent, general=True):
            sent = self._auth.header(call.scopes)
        response = self._send(call, url, sent)
        try:
            ready = self._ready(response, call, sent)
        except BaseException:
            response.close()
            raise
        if not ready:
            return response
        with _closed(response):
            pass
        return self._send(call, url, self._auth.header(call.scopes))

    def _ready(self, response: httpx.Response, call: OciRequest, sent: str | None) -> bool:
        """Get the credentials that a response asks for, and return whether the request must be sent again with them.

        `sent` is the Authorization header of the request. Raises the same errors as `Authenticator.answer`.
        """
        # A 403 has a challenge if a token is missing or its scopes do not suffice.
        challenge_header = response.headers.get("WWW-Authenticate", "") if response.status_code in (401, 403) else ""
        if challenge_header and self._auth.answer(challenge_header, call.scopes, sent):
            return True
        if sent is not None or response.status_code not in HIDING or _is_about_a_blob(call):
            return False
        # Some registries send no challenge but accept credentials (zot with anonymous readers).
        challenge = self._ping() or ("Basic" if response.status_code != 404 else "")
        return bool(challenge) and self._auth.answer(challenge, call.scopes, sent, general=True)

    def _ping(self) -> str:
        """Return the authentication challenge in the response to `/v2/`; an empty string if there is none."""
        # Some registries answer a request for private content with 404 instead of a challenge.
        if self._challenge is None:
            response = self._open(self._client.build_request("GET", self._origin.join("/v2/")))
            if response.status_code in retry.STATUSES:
                raise _retry_later(response, "it")
            with _closed(response):
                self._challenge = response.headers.get("WWW-Authenticate", "") if response.status_code == 401 else ""
        return self._challenge

    def _send(self, call: OciRequest, url: httpx.URL, authorization: str | None) -> httpx.Response:
        headers = dict(call.headers)
        if authorization:
            headers["Authorization"] = authorization
        if call.method not in ("GET", "HEAD"):
            headers["Content-Length"] = str(call.size)
        return self._open(self._client.build_request(call.method, url, headers=headers, content=call.body and call.body()))

    def _fetch(self, request: httpx.Request) -> tuple[int, bytes]:
        request.headers.update({"User-Agent": USER_AGENT, "Accept-Encoding": "identity"})
        throttled = AttemptLimit(self._limit, self.timing.clock(), retry.MAX_THROTTLED)
        while _is_throttled(response := self._open(request)):
            self.wait(throttled, _retry_later(response, request.url.host))
        if response.status_code in retry.STATUSES:
            raise _retry_later(response, request.url.host)
        with _closed(response):
            answer = read_response(response, MAX_TOKEN_ANSWER)
        return answer.status, answer.body

    def _open(self, request: httpx.Request) -> httpx.Response:
        try:
            return self._client.send(request, stream=True, follow_redirects=False)
        except httpx.TransportError as error:
            raise attempt_failed(error) from error


def _is_throttled(response: httpx.Response) -> bool:
    """Return whether a request was rejected by a rate limit: 429, or 403 with Retry-After."""
    return response.status_code == retry.TOO_MANY or (response.status_code == 403 and "Retry-After" in response.headers)


def _is_about_a_blob(call: OciRequest) -> bool:
    """Return whether a request only checks whether a blob exists (HEAD)."""
    # A 403 or 404 to it is no reason to get credentials. Before a push the blob is usually missing, and the POST that follows
    # shows whether credentials are missing.
    return call.method == "HEAD" and "/blobs/" in str(call.url)


def attempt_failed(error: httpx.TransportError) -> AttemptFailed:
    """Convert a network error into AttemptFailed."""
    if isinstance(error, httpx.TimeoutException):
        return AttemptFailed(f"there was no answer in time ({error})")
    return AttemptFailed(f"the connection failed ({error})")


@contextmanager
def _closed(response: httpx.Response) -> Iterator[httpx.Response]:
    """Close a response after the context. A small unread rest of the body is read first, so that the connection is reused."""
    try:
        yield response
        if not response.is_stream_consumed:
            with suppress(AttemptFailed, Corrupt):
                read_response(response)
    finally:
        response.close()


def _retry_later(response: httpx.Response, host: str) -> AttemptFailed:
    """Return AttemptFailed for a response with one of `retry.STATUSES` or throttling, and close the response."""
    with _closed(response):
        after = retry.retry_after(response.headers.get("Retry-After"), time.time())
        return AttemptFailed(f"{host} answered {response.status_code}{read_response(response).reason}", after)
