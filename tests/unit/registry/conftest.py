"""Model packages and stores for the registry's tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from model_registry.stores.layout import LayoutStore

SIGNATURE = """{"inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a", {"name": "b", "default": "nan"}]}],
 "output": {"tensor": "p", "index": 1}}"""
GOLDEN = '{"event": {"a": 1.5}, "score": 0.25, "tolerance": 1e-4}\n'

MakePackage = Callable[..., Path]


@pytest.fixture
def make_package(tmp_path: Path) -> MakePackage:
    """make_package("v1", model=b"...") writes a package into a new folder of that name."""

    def make(name: str = "v1", *, model: bytes = b"weights", signature: str = SIGNATURE, golden: str = GOLDEN) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model.onnx").write_bytes(model)
        (folder / "signature.json").write_text(signature)
        (folder / "golden.jsonl").write_text(golden)
        (folder / "README.md").write_text("# a model\n")
        return folder

    return make


@pytest.fixture
def store(tmp_path: Path) -> LayoutStore:
    """A repository that does not exist yet."""
    return LayoutStore(tmp_path / "registry" / "flight-delay")
