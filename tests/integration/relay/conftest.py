"""What tests of the relay share: two real brokers, each a cluster of its own, and a rig for each test."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scorer.demo.broker.embedded import EmbeddedBroker
from tests.integration.relay.rig import MakeRelay, RelayRig

LONGEST_TRANSACTION_MS = 60_000


@pytest.fixture(scope="package")
def eu() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="package")
def us() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(properties={"transaction.max.timeout.ms": str(LONGEST_TRANSACTION_MS)}) as running:
        yield running


@pytest.fixture
def make_relay(eu: EmbeddedBroker, us: EmbeddedBroker, tmp_path: Path, unique: str) -> Iterator[MakeRelay]:
    """`make_relay(lanes=2, source={...})`: a relay's surroundings with these settings changed. What runs is ended."""
    rigs: list[RelayRig] = []

    def make(**overrides: Any) -> RelayRig:
        rigs.append(RelayRig((eu.bootstrap_servers, us.bootstrap_servers), tmp_path, f"{unique}-{len(rigs)}", **overrides))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()
