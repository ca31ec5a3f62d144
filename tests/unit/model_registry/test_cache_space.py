"""The cache and the room there is: what goes first, what never goes, and what a full disk leaves."""

import contextlib
import resource
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from model_registry import package
from model_registry.cache import Cache
from model_registry.channels.channel import Resolution
from model_registry.container_image.build import BaseImage
from model_registry.errors import Refused, Unreachable
from model_registry.stores.oci_layout import LayoutStore
from tests.unit.model_registry.conftest import MakePackage


def versions_of(store: LayoutStore, make_package: MakePackage, count: int) -> list[str]:
    """Push versions of 100 kB each and return their digests."""
    return [
        package.push(store, make_package(f"p{n}", model=bytes([n]) * 100_000), "m", f"{n}.0.0").digest for n in range(count)
    ]


def cached_digests(root: Path) -> set[str]:
    return {f"sha256:{path.name}" for path in (root / "versions").iterdir() if not path.suffix}


def test_the_longest_unused_version_goes_first(store: LayoutStore, make_package: MakePackage, tmp_path: Path) -> None:
    first, second, third, fourth = versions_of(store, make_package, 4)
    cache = Cache(tmp_path / "cache", max_bytes=320_000)
    for digest in (first, second, third, first):
        cache.fetch(store, digest)
        cache.release(digest)
    cache.fetch(store, fourth)
    assert cached_digests(tmp_path / "cache") == {first, third, fourth}


def test_what_is_in_use_or_known_good_stays(store: LayoutStore, make_package: MakePackage, tmp_path: Path) -> None:
    used, remembered, idle, new = versions_of(store, make_package, 4)
    other, cache = Cache(tmp_path / "cache"), Cache(tmp_path / "cache", max_bytes=1)
    other.fetch(store, used)
    for digest in (remembered, idle):
        other.fetch(store, digest)
        other.release(digest)
    other.save_resolution("oci:/r/m:prod", Resolution(remembered, "1.0.0", 1))
    assert cache.fetch(store, new).model_path.is_file()
    assert cached_digests(tmp_path / "cache") == {used, remembered, new}
    other.release(used)
    cache.release(new)
    cache.fetch(store, idle)
    assert cached_digests(tmp_path / "cache") == {remembered, idle}


def test_a_process_that_dies_uses_nothing(store: LayoutStore, make_package: MakePackage, tmp_path: Path) -> None:
    dead, new = versions_of(store, make_package, 2)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(_fetch, store, tmp_path / "cache", dead).result()
        cache = Cache(tmp_path / "cache", max_bytes=1)
        cache.fetch(store, new)
        assert cached_digests(tmp_path / "cache") == {dead, new}
    cache.release(new)
    cache.fetch(store, new)
    newer = package.push(store, make_package("newer"), "m", "9.0.0").digest
    cache.fetch(store, newer)
    assert cached_digests(tmp_path / "cache") == {new, newer}


def test_a_version_that_is_too_large_is_refused_before_it_is_fetched(
    store: LayoutStore, make_package: MakePackage, tmp_path: Path
) -> None:
    (digest,) = versions_of(store, make_package, 1)
    with pytest.raises(Refused, match="at most 99999 are read"):
        Cache(tmp_path / "cache", max_version_bytes=99_999).fetch(store, digest)
    assert cached_digests(tmp_path / "cache") == set()


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Simulate a full disk: bytes of a file beyond this size cannot be written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("as_image", [False, True])
def test_a_disk_that_is_full_at_any_step_leaves_nothing_and_the_next_try_succeeds(
    store: LayoutStore, make_package: MakePackage, tmp_path: Path, as_image: bool
) -> None:
    base = BaseImage() if as_image else None
    old, new = (
        package.push(store, make_package(f"p{n}", model=bytes([n]) * 50_000), "m", f"{n}.0.0", base=base).digest for n in (1, 2)
    )
    cache = Cache(tmp_path / "cache")
    cache.fetch(store, old)
    for size in (0, 5, 50, 120, 300, 40_000):  # each file of a version fails at one of them
        with largest_file(size), pytest.raises(Unreachable):
            cache.fetch(store, new)
        assert cached_digests(tmp_path / "cache") == {old}
        assert cache.fetch(store, old).model_path.stat().st_size == 50_000
    with largest_file(10), pytest.raises(Unreachable):
        cache.save_resolution("k", Resolution(new, "2.0.0", 2))
    assert cache.load_resolution("k") is None
    assert cache.fetch(store, new).model_path.read_bytes() == b"\2" * 50_000


def test_a_pull_onto_a_full_disk_leaves_nothing(store: LayoutStore, make_package: MakePackage, tmp_path: Path) -> None:
    digest = package.push(store, make_package(model=b"w" * 50_000), "m", "1.0.0").digest
    (tmp_path / "mount").mkdir()
    for folder in (tmp_path / "new", tmp_path / "mount"):
        with largest_file(40_000), pytest.raises(Unreachable, match="File too large"):
            package.pull(store, digest, folder)
        assert not folder.exists() or list(folder.iterdir()) == []
        assert package.pull(store, digest, folder).model_path.stat().st_size == 50_000


def _fetch(store: LayoutStore, root: Path, digest: str) -> None:
    Cache(root).fetch(store, digest)
