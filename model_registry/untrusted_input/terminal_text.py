"""Makes untrusted text harmless for terminals."""

import re

# C0 and C1 controls, DEL, line separators, and the marks that reorder a line; tab and newline are handled by `printable`.
_ACTIVE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: object, *, lines: bool = False) -> str:
    r"""Escape the control characters in a text, such as `\x1b`; with `lines`, keep newlines and tabs."""
    allowed = "\n\t" if lines else ""
    return _ACTIVE.sub(lambda match: match[0] if match[0] in allowed else _escaped(match[0]), str(text))


def printable_json(document: bytes) -> bytes:
    """Escape the control characters in UTF-8 JSON; the values stay the same."""
    if document.isascii() and b"\x7f" not in document:
        return document
    return _IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", document.decode()).encode()


def _escaped(character: str) -> str:
    return f"\\x{ord(character):02x}" if ord(character) < 0x100 else f"\\u{ord(character):04x}"
