"""Protection of the console against other web sites: strict headers, a CSRF token in each form, and a limit of form sizes."""

import hashlib
import hmac
import secrets
from urllib.parse import parse_qsl

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "scorestream-console"
BODY_BYTES = 16_384
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class StrictHeaders:
    """ASGI middleware that adds HEADERS to every response and forbids caching unless the response allows it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, and add the headers to its response."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, sent)


class CsrfTokens:
    """Create and check CSRF tokens: each token is the HMAC of a random cookie, made with a random key of this process."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def cookie_and_token(self, request: Request) -> tuple[str, str]:
        """Return (cookie, token). The cookie is the one that the browser sent, or a new one if it sent none."""
        cookie = request.cookies.get(COOKIE) or secrets.token_urlsafe(24)
        return cookie, self._token(cookie)

    def set_cookie(self, response: Response, cookie: str) -> None:
        """Set the cookie in a response, so that browsers send it with requests from this site only."""
        response.set_cookie(COOKIE, cookie, httponly=True, samesite="strict")

    def check(self, request: Request, given: str) -> None:
        """Raise HTTPException (403) if `given`, the token in a form, is not the CSRF token of the request's cookie."""
        cookie = request.cookies.get(COOKIE, "")
        if not cookie or not hmac.compare_digest(self._token(cookie).encode(), given.encode()):
            raise HTTPException(403, "the form is not from this console, or the console was restarted: load the page again")

    def _token(self, cookie: str) -> str:
        return hmac.new(self._key, cookie.encode(), hashlib.sha256).hexdigest()


async def form(request: Request) -> dict[str, str]:
    """Read the body of a request, and return the fields of its form.

    Raises:
        HTTPException: With status 413 if the form is larger than BODY_BYTES.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            raise HTTPException(413, f"a form has at most {BODY_BYTES} bytes")
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
