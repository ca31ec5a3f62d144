"""The properties of Confluent's schema registry client that `schema_registry.extra` may set, and the printable values.

Properties that are not listed are rejected.
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
"""Values that are never printed."""
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
"""Values that may be printed; credentials in their URLs are masked."""

URLS = ("bearer.auth.issuer.endpoint.url", "proxy")


def check(extra: Mapping[str, object]) -> Mapping[str, object]:
    """Return the properties. Raises ValueError, naming every property that must not be set and why, but no values."""
    faults = [text for key in sorted(extra) if (text := _fault(key, extra[key])) is not None]
    if faults:
        raise ValueError("; ".join(faults))
    return extra


def check_url(url: str) -> str:
    """Return the URL. Raises ValueError if it has no host or no valid port, as with a password that is not escaped."""
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
    """Return the client that `make` creates from these properties.

    Raises:
        Fatal: The properties contradict each other, or name a file that cannot be read (exit code 2).
    """
    try:
        return make(properties)
    except (ValueError, TypeError, OSError) as error:
        raise Fatal(f"schema_registry: {error}", "correct schema_registry.extra", USAGE) from error
