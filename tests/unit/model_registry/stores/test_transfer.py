"""Several blobs at once: all of them, or an error and nothing half-written."""

import io
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from model_registry.errors import NotFound
from model_registry.oci.manifest import Descriptor
from model_registry.stores import transfer
from model_registry.stores.layout import LayoutStore
from tests.conformance.store import ABSENT, described


def test_the_first_error_stops_what_is_under_way(store: LayoutStore, tmp_path: Path) -> None:
    transfer.upload(store, [(described(b"x"), partial(io.BytesIO, b"x"))])
    begun = threading.Barrier(2, timeout=30)

    class Endless(LayoutStore):
        def blob(self, content: Descriptor) -> Iterator[bytes]:
            begun.wait()
            if content.digest == ABSENT:
                yield from super().blob(content)
            while True:
                yield b"more"

    endless = Endless(store._path)
    missing = Descriptor(media_type="x", digest=ABSENT, size=1)
    with pytest.raises(NotFound):
        transfer.download(endless, [(described(b"x"), tmp_path / "one"), (missing, tmp_path / "two")])
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []
