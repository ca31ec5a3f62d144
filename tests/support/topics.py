"""Requests of tests to a broker with an admin client."""

import functools
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka.admin import AdminClient

ANSWER_SECONDS = 30.0


@functools.cache
def admin(servers: str) -> AdminClient:
    """Return the admin client of a cluster.

    Clients are kept until the process ends, because the pending answers of a client are lost if the client is garbage
    collected.
    """
    properties: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0, "error_cb": lambda _: None}
    return AdminClient(properties)


def settle(requests: Mapping[Any, "Future[Any]"]) -> None:
    """Wait for the answer to every request. Raises the error of a request that the broker rejects."""
    for future in requests.values():
        future.result(ANSWER_SECONDS)
