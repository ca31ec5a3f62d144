"""The space of the cache: the order of removals, the versions that are never removed, and a full disk."""

import contextlib
import random
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
from model_registry.oci.manifest import Descriptor
from model_registry.stores.oci_layout import LayoutStore
from tests.unit.model_registry.conftest import MakePackage


def versions_of(store: LayoutStore, make_package: MakePackage, count: int) -> list[str]:
    """Push versions of 100 kB each and return their digests."""
    return [
        package.push(store, make_package(f"p{n}", model=bytes([n]) * 100_000), "m", f"{n}.0.0").digest for n in range(count)
    ]


def cached_digests(root: Path) -> set[str]:
    return {f"sha256:{path.name}" for path in (root / "versions").iterdir() if not path.suffix}


def test_the_least_recently_used_version_is_removed_first(
    store: LayoutStore, make_package: MakePackage, tmp_path: Path
) -> None:
    first, second, third, fourth = versions_of(store, make_package, 4)
    cache = Cache(tmp_path / "cache", max_bytes=320_000)
    for digest in (first, second, third, first):
        cache.fetch(store, digest)
        cache.release(digest)
    cache.fetch(store, fourth)
    assert cached_digests(tmp_path / "cache") == {first, third, fourth}


def test_a_version_in_use_is_retained_and_a_known_good_version_is_removed_last(
    store: LayoutStore, make_package: MakePackage, tmp_path: Path
) -> None:
    used, remembered, idle, new, newest = versions_of(store, make_package, 5)
    other = Cache(tmp_path / "cache")
    cache = Cache(tmp_path / "cache", max_bytes=320_000)
    for digest in (used, remembered, idle):
        other.fetch(store, digest)
    for digest in (remembered, idle):
        other.release(digest)
    other.save_resolution("oci:/r/m:prod", Resolution(remembered, "1.0.0", 1))
    cache.fetch(store, new)
    assert cached_digests(tmp_path / "cache") == {used, remembered, new}
    cache.fetch(store, newest)
    assert cached_digests(tmp_path / "cache") == {used, new, newest}


def test_a_process_that_dies_uses_nothing(store: LayoutStore, make_package: MakePackage, tmp_path: Path) -> None:
    dead, new = versions_of(store, make_package, 2)
    cache = Cache(tmp_path / "cache", max_bytes=150_000)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(_fetch, store, tmp_path / "cache", dead).result()
        with pytest.raises(Refused):
            cache.fetch(store, new)
    cache.fetch(store, new)
    assert cached_digests(tmp_path / "cache") == {new}


def test_a_version_that_does_not_fit_beside_the_one_in_use_fits_after_its_release(
    store: LayoutStore, make_package: MakePackage, tmp_path: Path
) -> None:
    served, following = versions_of(store, make_package, 2)
    cache = Cache(tmp_path / "cache", max_bytes=150_000)
    cache.fetch(store, served)
    with pytest.raises(Refused, match=r"no room for version 1\.0\.0: .* model\.cache_bytes limits the cache to 150000 bytes"):
        cache.fetch(store, following)
    assert cached_digests(tmp_path / "cache") == {served}
    cache.release(served)
    assert cache.fetch(store, following).version == "1.0.0"


def test_a_known_good_version_is_retained_if_its_removal_would_not_make_room(
    store: LayoutStore, make_package: MakePackage, tmp_path: Path
) -> None:
    served, remembered = versions_of(store, make_package, 2)
    large = package.push(store, make_package("large", model=b"w" * 150_000), "m", "9.0.0").digest
    cache = Cache(tmp_path / "cache", max_bytes=240_000)
    for digest in (served, remembered):
        cache.fetch(store, digest)
    cache.release(remembered)
    cache.save_resolution("oci:/r/m:prod", Resolution(remembered, "1.0.0", 1))
    with pytest.raises(Refused):
        cache.fetch(store, large)
    assert cached_digests(tmp_path / "cache") == {served, remembered}


def test_a_damaged_entry_does_not_count_against_its_own_replacement(
    store: LayoutStore, make_package: MakePackage, tmp_path: Path
) -> None:
    (digest,) = versions_of(store, make_package, 1)
    cache = Cache(tmp_path / "cache", max_bytes=150_000)
    cache.fetch(store, digest).model_path.write_bytes(b"damaged" * 10_000)
    assert cache.fetch(store, digest).model_path.read_bytes() == b"\0" * 100_000


@pytest.mark.parametrize("as_image", [False, True])
def test_a_version_that_is_larger_than_the_cache_is_refused(
    store: LayoutStore, make_package: MakePackage, tmp_path: Path, as_image: bool
) -> None:
    content = random.Random(1).randbytes(100_000)
    base = BaseImage() if as_image else None
    digest = package.push(store, make_package(model=content), "m", "1.0.0", base=base).digest
    limit = 120_000 if as_image else 99_999  # an entry of an image holds its layers too
    with pytest.raises(Refused, match=rf"but model\.cache_bytes limits the cache to {limit} bytes") as refused:
        Cache(tmp_path / "cache", max_bytes=limit).fetch(store, digest)
    assert "set model.cache_bytes to at least" in refused.value.hint
    assert cached_digests(tmp_path / "cache") == set()


def test_a_version_larger_than_the_cache_is_refused_before_its_download(
    store: LayoutStore, make_package: MakePackage, tmp_path: Path
) -> None:
    (digest,) = versions_of(store, make_package, 1)
    downloads = []

    class CountingStore(LayoutStore):
        def blob(self, descriptor: Descriptor) -> Iterator[bytes]:
            downloads.append(descriptor)
            return super().blob(descriptor)

    with pytest.raises(Refused):
        Cache(tmp_path / "cache", max_bytes=99_999).fetch(CountingStore(Path(store.repository.removeprefix("oci:"))), digest)
    assert [blob.size for blob in downloads if blob.size >= 100_000] == []


def test_a_version_that_is_too_large_is_refused_before_it_is_fetched(
    store: LayoutStore, make_package: MakePackage, tmp_path: Path
) -> None:
    (digest,) = versions_of(store, make_package, 1)
    with pytest.raises(Refused, match="the limit is 99999 bytes"):
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
    for size in (0, 5, 50, 120, 300, 40_000):  # each file of a version fails at one of these sizes
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
