"""The cache is verified on every use, repaired if possible, and sufficient for a start without the registry."""

import os
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_struct

from model_registry import package
from model_registry.cache import Cache
from model_registry.channels.channel import Resolution
from model_registry.errors import Corrupt, Unreachable
from model_registry.oci import manifest
from model_registry.package.signature import SignatureError
from model_registry.stores.oci_layout import LayoutStore
from tests.conformance.store import put
from tests.unit.model_registry.conftest import MakePackage

PROCESSES = 3


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def digest(store: LayoutStore, make_package: MakePackage) -> str:
    folder = make_package()
    (folder / "data").mkdir()
    (folder / "data" / "vocabulary.txt").write_text("late\n")
    return package.push(store, folder, "flight-delay", "1.0.0").digest


def close(store: LayoutStore) -> None:
    shutil.rmtree(store._path)


def test_a_fetched_version_is_available_without_the_registry(cache: Cache, store: LayoutStore, digest: str) -> None:
    fetched = cache.fetch(store, digest)
    close(store)
    assert cache.fetch(store, digest) == fetched
    assert (fetched.name, fetched.version, fetched.digest) == ("flight-delay", "1.0.0", digest)
    assert fetched.model_path.read_bytes() == b"weights"
    assert fetched.signature is not None
    assert len(fetched.golden) == 1


def _link(folder: Path) -> None:
    (folder / "README.md").unlink()
    (folder / "README.md").symlink_to(_manifest(folder))


def _manifest(folder: Path) -> Path:
    return folder.parent / "blobs" / "sha256" / folder.parent.name


def _folder_for_manifest(folder: Path) -> None:
    _manifest(folder).unlink()
    _manifest(folder).mkdir()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "changed": lambda folder: (folder / "model.onnx").write_bytes(b"Weights"),
    "truncated": lambda folder: (folder / "model.onnx").write_bytes(b"weight"),
    "longer": lambda folder: (folder / "model.onnx").write_bytes(b"weights!"),
    "missing": lambda folder: (folder / "README.md").unlink(),
    "added": lambda folder: (folder / "model.onnx.data").write_bytes(b"x"),
    "link": _link,
    "no files": shutil.rmtree,
    "manifest changed": lambda folder: _manifest(folder).write_bytes(b"{}"),
    "manifest missing": lambda folder: _manifest(folder).unlink(),
    "manifest a folder": _folder_for_manifest,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_never_used_and_fetched_again(cache: Cache, store: LayoutStore, digest: str, damage: str) -> None:
    DAMAGE[damage](cache.fetch(store, digest).folder)
    with pytest.raises(Unreachable):
        cache.fetch(LayoutStore(store._path.with_name("absent")), digest)
    refetched = cache.fetch(store, digest)
    close(store)
    assert refetched.model_path.read_bytes() == b"weights"
    assert cache.fetch(store, digest) == refetched


def test_a_fetch_that_fails_leaves_nothing_behind(cache: Cache, store: LayoutStore, digest: str, tmp_path: Path) -> None:
    files = manifest.parse_version(store.manifest(digest)).files
    for needed in (digest, *(file.content.digest for file in files)):
        path = store._blob_path(needed)
        original = path.read_bytes()
        path.write_bytes(b"damaged")
        with pytest.raises(Corrupt, match=needed):
            cache.fetch(store, digest)
        path.write_bytes(original)
    assert {path.suffix for path in (tmp_path / "cache" / "versions").iterdir()} <= {".lock", ".use"}
    assert cache.fetch(store, digest).version == "1.0.0"


def test_interrupted_fetches_are_repaired(cache: Cache, store: LayoutStore, digest: str, tmp_path: Path) -> None:
    for name in (digest.removeprefix("sha256:"), "0" * 64):
        (tmp_path / "cache" / "versions" / f"{name}.part" / "files").mkdir(parents=True)
        (tmp_path / "cache" / "versions" / f"{name}.part" / "files" / "model.onnx").write_bytes(b"wei")
    assert cache.fetch(store, digest).model_path.read_bytes() == b"weights"
    assert not list((tmp_path / "cache").rglob("*.part"))


def test_a_version_that_must_not_be_used_is_refused(cache: Cache, store: LayoutStore, digest: str, tmp_path: Path) -> None:
    """Its bytes match the manifest, but the signature is invalid: another tool pushed it."""
    put(store, b"{}")  # the config
    broken = put(store, b'{"inputs": []}')
    files = [
        replace(file, content=replace_struct(broken, media_type="x.raw")) if file.path == "signature.json" else file
        for file in manifest.parse_version(store.manifest(digest)).files
    ]
    pushed = store.push_manifest(manifest.build_version("m", "1", None, files, b"{}"))
    with pytest.raises(SignatureError, match="'output' is missing"):
        cache.fetch(store, pushed.digest)
    assert not list((tmp_path / "cache").rglob("model.onnx"))


def test_an_invalid_digest_is_no_path_and_a_cache_that_cannot_be_written_is_an_error(
    cache: Cache, store: LayoutStore, digest: str, tmp_path: Path
) -> None:
    with pytest.raises(Corrupt):
        cache.fetch(store, "sha256:../../x")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Unreachable, match="the model cache"):
        Cache(tmp_path / "file").fetch(store, digest)


def test_several_processes_share_a_cache(store: LayoutStore, digest: str, tmp_path: Path) -> None:
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        arguments = ([store] * PROCESSES, [tmp_path / "cache"] * PROCESSES, [digest] * PROCESSES)
        assert list(pool.map(_fetch_often, *arguments)) == [b"weights" * 10] * PROCESSES


def _fetch_often(store: LayoutStore, root: Path, digest: str) -> bytes:
    return b"".join(Cache(root).fetch(store, digest).model_path.read_bytes() for _ in range(10))


def test_the_last_version_known_good(cache: Cache, tmp_path: Path) -> None:
    first, second = Resolution("sha256:" + "1" * 64, "1.0.0", 1), Resolution("sha256:" + "2" * 64, "2.0.0", 2)
    assert cache.load_resolution("oci:/r/m:prod") is None
    cache.save_resolution("oci:/r/m:prod", first)
    cache.save_resolution("oci:/r/m:canary", first)
    cache.save_resolution("oci:/r/m:prod", second)
    assert Cache(tmp_path / "cache").load_resolution("oci:/r/m:prod") == second
    assert cache.load_resolution("oci:/r/m:canary") == first
    assert cache.load_resolution("oci:/r/m:other") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": "k", "digest": "sha256:x", "version": "1", "revision": 1}'])
def test_a_damaged_resolution_is_ignored(cache: Cache, tmp_path: Path, text: str) -> None:
    cache.save_resolution("k", Resolution("sha256:" + "1" * 64, "1.0.0", 1))
    (path,) = (tmp_path / "cache" / "known").iterdir()
    path.write_text(text)
    assert cache.load_resolution("k") is None


def test_the_default_cache_is_in_the_folder_of_the_user(
    store: LayoutStore, digest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert Cache().fetch(store, digest).folder.is_relative_to(tmp_path / "xdg" / "scorestream")


def test_a_cache_that_was_filled_beforehand_may_be_read_only(store: LayoutStore, digest: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Cache(Path(folder) / "cache").fetch(store, digest)
        for path in (*Path(folder).rglob("*"), Path(folder)):
            path.chmod(0o555 if path.is_dir() else 0o444)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            assert pool.submit(_fetch_without_root, Path(folder) / "cache", digest).result() == b"weights"
        for path in (Path(folder), *Path(folder).rglob("*")):
            path.chmod(0o755)


def _fetch_without_root(root: Path, digest: str) -> bytes:
    if os.getuid() == 0:
        os.setuid(65_534)  # root ignores read-only modes
    return Cache(root).fetch(LayoutStore(Path("/nowhere")), digest).model_path.read_bytes()
