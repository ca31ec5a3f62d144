"""What a server asks for when it answers 401: the WWW-Authenticate header, parsed (RFC 9110, 11.6.1). Decides nothing."""

import re
from dataclasses import dataclass

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PART = re.compile(
    rf'\s*(?:(?P<name>{_TOKEN})\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>{_TOKEN}))|(?P<scheme>{_TOKEN}))\s*,?'
)
MOST_PARTS = 50


@dataclass(frozen=True, slots=True)
class Challenge:
    """One way to authenticate: a scheme in lower case, and its parameters, names in lower case."""

    scheme: str
    parameters: dict[str, str]


def parse(header: str) -> list[Challenge]:
    """The challenges in a header, in order; what follows something that does not read is left out."""
    found: list[Challenge] = []
    at = 0
    for _ in range(MOST_PARTS):
        if (part := _PART.match(header, at)) is None:
            break
        at = part.end()
        if part["scheme"]:
            found.append(Challenge(part["scheme"].lower(), {}))
        elif found:
            value = part["bare"] if part["quoted"] is None else re.sub(r"\\(.)", r"\1", part["quoted"])
            found[-1].parameters.setdefault(part["name"].lower(), value)
    return found
