"""The properties of Confluent's schema registry client that `schema_registry.extra` may set.

All other properties are rejected. This module also determines the properties whose values may be printed.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar
from urllib.parse import urlsplit

from publisher.errors import USAGE, Fatal
from publisher.runtime.configuration import nearest

Client = TypeVar("Client")

_FUNCTION = "its value is a Python function"
REJECTED: Mapping[str, str] = MappingProxyType(
    {
        "url": "`schema_registry.url` sets it",
        "bearer.auth.custom.provider.function": _FUNCTION,
        "bearer.auth.custom.provider.config": _FUNCTION,
    }
)
SECRET = frozenset(
    {
        "basic.auth.user.info",
        "bearer.auth.client.secret",
        "bearer.auth.issuer.endpoint.query",
        "bearer.auth.token",
        "ssl.key.password",
    }
)
"""Properties whose values are never printed."""
ALLOWED = frozenset(
    {
        "bearer.auth.client.id",
        "bearer.auth.credentials.source",
        "bearer.auth.identity.pool.id",
        "bearer.auth.issuer.endpoint.url",
        "bearer.auth.logical.cluster",
        "bearer.auth.scope",
        "cache.capacity",
        "cache.latest.ttl.sec",
        "max.retries",
        "proxy",
        "retries.max.wait.ms",
        "retries.wait.ms",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "timeout",
    }
)
"""Properties whose values may be printed. Credentials in URLs are masked."""

URLS = ("bearer.auth.issuer.endpoint.url", "proxy")


def check(extra: Mapping[str, object]) -> Mapping[str, object]:
    """Return the properties unchanged.

    Raises ValueError if a property must not be set. The error has the name and the reason of each such property, but no values.
    """
    faults = [text for key in sorted(extra) if (text := _fault(key, extra[key])) is not None]
    if faults:
        raise ValueError("; ".join(faults))
    return extra


def check_url(url: str) -> str:
    """Return the URL unchanged. Raises ValueError if it has no host, or an invalid port.

    The usual cause of this error is a password with special characters that are not escaped.
    """
    try:
        parts = urlsplit(url)
        if parts.hostname and parts.port != 0:
            return url
    except ValueError:
        pass  # its message may hold a part of a password
    raise ValueError("not a URL with a host; escape special characters of a password, such as %2F for /")


def _fault(key: str, value: object) -> str | None:
    if key in REJECTED:
        return f"{key} must not be set: {REJECTED[key]}; leave it out"
    if key not in ALLOWED | SECRET:
        return f"{key} is not a property of the schema registry client; {nearest(key, sorted(ALLOWED | SECRET))}"
    if key in URLS:
        try:
            check_url(str(value))
        except ValueError as error:
            return f"{key} is {error}"
    return None


def open_client(
    make: Callable[[dict[str, str | int | float | bool]], Client], properties: dict[str, str | int | float | bool]
) -> Client:
    """Create a client with these properties by calling `make`.

    Raises:
        Fatal: The properties contradict each other, or name a file that cannot be read (exit code 2).
    """
    try:
        return make(properties)
    except (ValueError, TypeError, OSError) as error:
        raise Fatal(f"schema_registry: {error}", "correct schema_registry.extra", USAGE) from error
