"""What a registry answered: read whole and with a limit, its errors in the registry's words."""

from dataclasses import dataclass

import httpx
import msgspec

from model_registry.errors import Corrupt, Refused, RegistryError, Unreachable
from model_registry.stores import retry

MAX_ERROR = 16 << 10  # bytes of an answer that matters little


class _Error(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Errors(msgspec.Struct):
    errors: list[_Error] = []


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer from `url`; of its body one byte more than was asked for says that there is more."""

    status: int
    headers: httpx.Headers
    url: httpx.URL
    body: bytes

    @property
    def said(self) -> str:
        """The reasons that a registry gives for an error, for people: at most a line, begun with a colon."""
        try:
            found = msgspec.json.decode(self.body, type=_Errors).errors
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return ""
        text = "; ".join(f"{error.code} {error.message}".strip() for error in found[:3])
        return f": {''.join(c if c.isprintable() else '?' for c in text):.300}" if text else ""

    def location(self) -> httpx.URL:
        """Where to go on. Raises Corrupt."""
        text = self.headers.get("Location", "")
        try:
            return self.url.join(text) if text else _no_location(self, text)
        except httpx.InvalidURL:
            return _no_location(self, text)

    def error(self, doing: str) -> RegistryError:
        """What an answer that is no success means."""
        message = f"{self.url.host} answered {self.status} to {doing}{self.said}"
        if self.status in (401, 403):
            return Unreachable(message, f"docker login {self.url.netloc.decode()}, with an account that may do it")
        if self.status >= 500 or self.status in retry.STATUSES:
            return Unreachable(message, "try again later, or look into the registry's log")
        return Refused(message, "the registry does not take that; look into its log")


def read(response: httpx.Response, limit: int) -> Answer:
    """Read an answer, at most `limit` bytes of its body and one. Raises httpx.TransportError."""
    data = bytearray()
    for chunk in response.iter_raw():
        data += chunk
        if len(data) > limit:
            break
    return Answer(response.status_code, response.headers, response.url, bytes(data[: limit + 1]))


def _no_location(answer: Answer, text: str) -> httpx.URL:
    raise Corrupt(f"{answer.url.host} answered {answer.status} with {text!r:.200} as its Location")
