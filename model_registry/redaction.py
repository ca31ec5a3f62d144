"""Removes credentials from text before the text is printed, logged or served. Uses no settings and does no I/O."""

import re

MASK = "***"
_WITH_SCHEME = re.compile(r"(:/+)\S*@(?!sha256:)")  # up to the last @: a password that is not escaped may hold : / ? and @
_WITHOUT_SCHEME = re.compile(r"(?<![\w/:])[^\s/:@'\"<>(]+:[^\s/@'\"<>]+@(?!sha256:)")
_QUERY = re.compile(r"(://[^\s?'\"<>]*\?)[^\s'\"<>]+")


def redacted(text: str) -> str:
    """Mask the user information and the query string of every URL in a text, and `user:password@` before a bare host."""
    if "@" not in text and "?" not in text:
        return text
    masked = _WITH_SCHEME.sub(rf"\1{MASK}@", text)
    return _QUERY.sub(rf"\1{MASK}", _WITHOUT_SCHEME.sub(f"{MASK}@", masked))
