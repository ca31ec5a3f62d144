"""Places where models are opened, one for each test class."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scorer.settings import ModelSettings
from tests.conformance.backend import Place
from tests.conformance.remote_backend import DEADLINE_MS
from tests.integration.backends import models
from tests.integration.backends.servers import KINDS


@pytest.fixture(scope="class")
def onnx_place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """ONNX Runtime in this process."""
    return Place(ModelSettings(source="oci:."), tmp_path_factory.mktemp("onnx"), models.onnx_model)


def remote_place(kind: str, folder: Path) -> Iterator[Place]:
    """A running server of this kind, and packages for it."""
    server = KINDS[kind].server(folder / "served").start()
    settings = ModelSettings.model_validate(
        {
            "source": "oci:.",
            "backend": KINDS[kind].backend,
            "endpoints": [server.address],
            "server_folder": server.folder,
            "deadline_ms": DEADLINE_MS,
            "load_seconds": 30,
        }
    )
    packages = folder / "mixed"
    packages.mkdir()
    yield Place(settings, packages, KINDS[kind].model, server)
    server.close()
