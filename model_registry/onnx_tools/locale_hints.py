"""Hints for missing locales.

An operator of ONNX Runtime that changes the case of text needs a locale of the operating system, by default en_US.
"""

import re

_MISSING = re.compile(r"locale with name:\s*(?P<name>[A-Za-z0-9_.@-]+)")


def hint(error: str) -> str:
    """Return how to install the locale that an error of ONNX Runtime reports as missing; an empty string for other errors."""
    match = _MISSING.search(error)
    if match is None:
        return ""
    name = match["name"]
    install = f"apt-get install locales && localedef -i {name.removesuffix('.UTF-8')} -f UTF-8 {name}"
    return f"the model needs the locale {name}, here and where the scorers run (the image has en_US): {install}"
