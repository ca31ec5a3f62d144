"""What tests ask of a broker as a person with an admin client does."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka.admin import AdminClient

ANSWER_SECONDS = 30.0


def admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers})


def settle(asked: Mapping[Any, "Future[Any]"]) -> None:
    """Wait for every answer. Raises what the broker refuses."""
    for future in asked.values():
        future.result(ANSWER_SECONDS)
