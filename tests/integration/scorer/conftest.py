"""The schema registry of the tests here: one for each process of the run."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.integration.scorer.schema_registry import SchemaRegistry


@pytest.fixture(scope="session")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    with contextlib.closing(SchemaRegistry(tmp_path_factory.mktemp("schema-registry"))) as running:
        yield running.wait()
