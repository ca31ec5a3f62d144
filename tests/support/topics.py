"""What tests ask of a broker as a person with an admin client does."""

import functools
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka.admin import AdminClient

ANSWER_SECONDS = 30.0


@functools.cache
def admin(servers: str) -> AdminClient:
    """One client for each cluster. A client that is dropped takes the answers that are still to come with it."""
    properties: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0, "error_cb": lambda _: None}
    return AdminClient(properties)


def settle(asked: Mapping[Any, "Future[Any]"]) -> None:
    """Wait for every answer. Raises what the broker refuses."""
    for future in asked.values():
        future.result(ANSWER_SECONDS)
