"""The folder store: the suite of all stores, and the specifics of an OCI image layout."""

import io
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from model_registry.errors import Conflict, Corrupt, NotFound, Refused, Unreachable
from model_registry.oci import manifest, reference
from model_registry.oci.manifest import Descriptor
from model_registry.stores import parallel_transfer
from model_registry.stores.base import Store
from model_registry.stores.oci_layout import LayoutStore
from model_registry.stores.open import open_store
from tests.conformance.store import ABSENT, StoreConformance, described, put, put_manifest
from tests.unit.model_registry.conftest import run

PROCESSES, MOVES = 3, 20


class TestLayoutStore(StoreConformance):
    """The conformance tests of stores for the store in a folder."""

    MENDS = True

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Store:
        return open_store(reference.parse(f"oci:{tmp_path}/registry/model"))

    def damage(self, store: Store, digest: str, content: bytes) -> None:
        assert isinstance(store, LayoutStore)
        store._blob_path(digest).write_bytes(content)


def test_the_folder_is_an_image_layout(store: LayoutStore, tmp_path: Path) -> None:
    pushed = put_manifest(store, "one")
    store.move_tags({"1.0.0": pushed}, expect={})
    folder = tmp_path / "registry" / "flight-delay"
    assert json.loads((folder / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads((folder / "index.json").read_text())["manifests"]
    assert entry["annotations"] == {"org.opencontainers.image.ref.name": "1.0.0"}
    assert (entry["digest"], entry["size"]) == (pushed.digest, pushed.size)
    assert not list(folder.rglob("*.part"))


def test_entries_of_other_tools_are_unchanged(store: LayoutStore, tmp_path: Path) -> None:
    descriptor = put_manifest(store, "one")
    store.move_tags({"1.0.0": descriptor}, expect={})
    index = tmp_path / "registry" / "flight-delay" / "index.json"
    document = json.loads(index.read_text())
    foreign = dict(document["manifests"][0], annotations={"x": "y"}, platform={"os": "linux"})
    index.write_text(
        json.dumps(document | {"annotations": {"made": "elsewhere"}, "manifests": [*document["manifests"], foreign]})
    )
    store.move_tags({"2.0.0": descriptor}, expect={})
    after = json.loads(index.read_text())
    assert after["annotations"] == {"made": "elsewhere"}
    assert foreign in after["manifests"]
    assert store.tags() == ["1.0.0", "2.0.0"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"schemaVersion": 1, "manifests": []}',
        '{"schemaVersion": 2, "manifests": [1]}',
        '{"schemaVersion": 2, "manifests": [{"mediaType": "x", "digest": "../x", "size": 1, "annotations": {"%s": "a"}}]}',
    ],
)
def test_a_broken_index_is_corrupt(store: LayoutStore, tmp_path: Path, text: str) -> None:
    put(store, b"makes the repository")
    text = text.replace("%s", "org.opencontainers.image.ref.name")
    (tmp_path / "registry" / "flight-delay" / "index.json").write_text(text)
    with pytest.raises(Corrupt):
        store.tags()


def test_a_duplicate_tag_is_corrupt(store: LayoutStore, tmp_path: Path) -> None:
    store.move_tags({"prod": put_manifest(store, "one")}, expect={})
    index = tmp_path / "registry" / "flight-delay" / "index.json"
    document = json.loads(index.read_text())
    index.write_text(json.dumps(document | {"manifests": document["manifests"] * 2}))
    with pytest.raises(Corrupt, match="twice"):
        store.resolve("prod")


def test_a_stopped_or_reversed_clock_hides_no_move(store: LayoutStore, tmp_path: Path) -> None:
    targets = [put_manifest(store, "one"), put_manifest(store, "two")]
    store.move_tags({"prod": targets[0]}, expect={})
    index = tmp_path / "registry" / "flight-delay" / "index.json"
    future = index.stat().st_mtime_ns + 10**12
    os.utime(index, ns=(future, future))
    times = [future]
    for target in targets * 2:
        store.move_tags({"prod": target}, expect={})
        times.append(index.stat().st_mtime_ns)
    assert times == sorted(set(times))


def test_a_missing_folder_is_unreachable_and_not_created(store: LayoutStore, tmp_path: Path) -> None:
    for ask in (
        store.tags,
        lambda: store.validator("prod"),
        lambda: store.resolve("prod"),
        lambda: store.manifest("sha256:" + "0" * 64),
    ):
        with pytest.raises(Unreachable, match="no OCI layout at"):
            ask()
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_of_other_files_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(Refused, match="not an OCI layout"):
        put(LayoutStore(tmp_path), b"content")
    with pytest.raises(Unreachable):
        put(LayoutStore(tmp_path / "thesis.tex" / "model"), b"content")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("thesis.tex", "years of work")]


def test_a_reader_never_reads_an_incomplete_index(store: LayoutStore) -> None:
    """Two tags always move together; a concurrent reader reads both at the same manifest."""
    targets = [put_manifest(store, note) for note in ("one", "two")]
    store.move_tags({"a": targets[0], "b": targets[0]}, expect={})
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        writer = pool.submit(_move_both, store, [target.digest for target in targets])
        reads = 0
        while not writer.done() or not reads:
            index = store._tagged(store._index())  # one read of one state
            assert index["a"].digest == index["b"].digest
            reads += 1
        writer.result()


def test_a_compare_and_swap_has_one_winner(store: LayoutStore) -> None:
    target = put_manifest(store, "one")
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        claims = list(pool.map(_claim, [store] * PROCESSES, [target.digest] * PROCESSES))
    assert sum(claims) == MOVES  # each of the tags was claimed once


def _move_both(store: LayoutStore, digests: list[str]) -> None:
    for at in range(200):
        target = put_manifest(store, ("one", "two")[at % 2])
        assert target.digest in digests
        store.move_tags({"a": target, "b": target}, expect={})


def _claim(store: LayoutStore, digest: str) -> int:
    claims = 0
    target = put_manifest(store, "one")
    assert target.digest == digest
    for at in range(MOVES):
        try:
            store.move_tags({f"tag-{at}": target}, expect={f"tag-{at}": None})
        except Conflict:
            continue
        claims += 1
    return claims


def test_concurrent_pushes_create_the_folder(tmp_path: Path) -> None:
    stores = [LayoutStore(tmp_path / f"registry-{number}" / "model") for number in range(50)]
    with ThreadPoolExecutor(8) as pool:
        for store in stores:
            list(pool.map(partial(put, store), [f"{n}".encode() for n in range(8)]))
    assert all((store._path / "index.json").is_file() for store in stores)


def test_the_first_error_stops_downloads_in_flight(store: LayoutStore, tmp_path: Path) -> None:
    parallel_transfer.upload(store, [(described(b"x"), partial(io.BytesIO, b"x"))])
    both_started = threading.Barrier(2, timeout=30)

    class Endless(LayoutStore):
        def blob(self, content: Descriptor) -> Iterator[bytes]:
            both_started.wait()
            if content.digest == ABSENT:
                yield from super().blob(content)
            while True:
                yield b"more"

    endless = Endless(store._path)
    missing = Descriptor(media_type="x", digest=ABSENT, size=1)
    with pytest.raises(NotFound):
        parallel_transfer.download(endless, [(described(b"x"), tmp_path / "one"), (missing, tmp_path / "two")])
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("place", ["a file", "the manifest", "index.json"])
def test_a_fifo_in_the_place_of_content_is_named_without_a_wait(folder: Path, place: str) -> None:
    run("push", "./v1", "oci:registry/m:1.0.0")
    store = LayoutStore(folder / "registry" / "m")
    digest = store.resolve("1.0.0").digest
    content = {"a file": manifest.parse(store.manifest(digest)).layers[0].digest, "the manifest": digest}.get(place)
    path = store._blob_path(content) if content else folder / "registry" / "m" / "index.json"
    path.unlink()
    os.mkfifo(path)
    stderr = run("pull", "oci:registry/m:1.0.0", "./pulled", code=3).stderr
    assert f"{path} is not a regular file" in stderr
    assert not (folder / "pulled").exists()
    if place != "index.json":
        run("push", "./v1", "oci:registry/m:1.0.0")  # the same push replaces it
        run("pull", "oci:registry/m:1.0.0", "./pulled")
