"""A password that must never be printed, its encoded forms, and the settings of a configuration that could contain it."""

import base64
from collections.abc import Iterator
from typing import Any, get_origin
from urllib.parse import quote

from pydantic import BaseModel, SecretStr

CANARY = "hu$h+0815-Zw"
USER = "me"
URL = f"http://{USER}:{quote(CANARY, safe='')}@127.0.0.1:1/path"


def _forms() -> Iterator[str]:
    for text in (CANARY, quote(CANARY, safe="")):
        yield text
        for before in ("", f"{USER}:"):
            yield base64.b64encode(f"{before}{text}".encode()).decode().rstrip("=")


FORMS = tuple(_forms())


def seen_in(text: str) -> list[str]:
    """Return the forms of the password that occur in the text."""
    return [form for form in FORMS if form in text]


def places(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the type of each section and each setting of a settings class."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        yield prefix + name, kind
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from places(kind, f"{prefix}{name}.")


def is_section(kind: Any) -> bool:
    """Return whether a type is a section of settings, or a mapping of Kafka client properties."""
    return get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, BaseModel))


def is_secret(kind: Any) -> bool:
    """Return whether the type of a setting is a secret (`SecretStr`)."""
    return SecretStr in (kind, *getattr(kind, "__args__", ()))


def nested(name: str, value: object) -> dict[str, Any]:
    """Return the nested mapping that has the value at a dotted name."""
    for part in reversed(name.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `over`, section by section."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result
