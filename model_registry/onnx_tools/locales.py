"""Hints for missing locales. ONNX Runtime changes the case of text by a locale, en_US if the model names none."""

import re

_MISSING = re.compile(r"locale with name:\s*(?P<name>[A-Za-z0-9_.@-]+)")


def hint(error: str) -> str:
    """Return how to install the locale that ONNX Runtime lacks; an empty string for any other error."""
    match = _MISSING.search(error)
    if match is None:
        return ""
    name = match["name"]
    install = f"apt-get install locales && localedef -i {name.removesuffix('.UTF-8')} -f UTF-8 {name}"
    return f"the model needs the locale {name}, here and where the scorers run (the image has en_US): {install}"
