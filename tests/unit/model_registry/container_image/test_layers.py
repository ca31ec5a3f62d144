"""Layers: every compression gives the same entries, and hostile layers are refused early."""

import contextlib
import gzip
import io
import tarfile
import zlib
from collections.abc import Callable, Iterator

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from model_registry.container_image import layers
from model_registry.container_image.layers import Compression, UnpackLimits
from model_registry.errors import Corrupt
from tests.unit.model_registry.container_image.test_unpack import layer

LONG = "a/" + "x" * 150 + "/" + "ü" * 100
FILES = {LONG: b"hello", "block": b"z" * 512, "empty": b"", "large": bytes(range(256)) * 300}
TAR = layer(*FILES.items())
PACK: dict[Compression, Callable[[bytes], bytes]] = {"": bytes, "gzip": gzip.compress, "zstd": zstandard.compress}


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def entries(
    data: bytes, compression: Compression = "", size: int = 1000, limits: UnpackLimits | None = None
) -> dict[str, bytes]:
    limits = limits or UnpackLimits()
    unpacked = layers.unpack(pieces(data, size), compression, limits)
    return {member.path: b"".join(member.content) for member in layers.members(unpacked, limits)}


@pytest.mark.parametrize("fmt", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("size", [1, 511, 1 << 20])
def test_every_compression_gives_the_same_entries(fmt: int, size: int) -> None:
    data = layer(*FILES.items(), fmt=fmt)
    packings: dict[Compression, list[bytes]] = {
        "": [data],
        "gzip": [gzip.compress(data), gzip.compress(data[:700]) + gzip.compress(data[700:]) + b"\0" * 9],
        "zstd": [zstandard.compress(data), zstandard.compress(data[:700]) + zstandard.compress(data[700:])],
    }
    for compression, packed in packings.items():
        for archive_bytes in packed:
            assert entries(archive_bytes, compression, size) == FILES


def test_the_unread_rest_of_an_entry_is_skipped() -> None:
    limits = UnpackLimits()
    assert [member.path for member in layers.members(pieces(TAR, 100), limits)] == list(FILES)


def test_links_devices_and_sparse_files_are_named_as_such() -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        types = {"soft": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE, "dev": tarfile.CHRTYPE, "dir": tarfile.DIRTYPE}
        for name, kind in types.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc/passwd"
            archive.addfile(entry)
        sparse = tarfile.TarInfo("sparse")
        sparse.pax_headers = {"GNU.sparse.major": "1"}
        archive.addfile(sparse)
    kinds = {member.path: member.kind for member in layers.members(iter([data.getvalue()]), UnpackLimits())}
    assert kinds == {"soft": "link", "hard": "link", "dev": "special", "dir": "folder", "sparse": "special"}


def header(size: int | str, kind: bytes = tarfile.REGTYPE) -> bytes:
    """Return a tar header that states any size."""
    entry = tarfile.TarInfo("x")
    entry.type = kind
    block = bytearray(entry.tobuf(tarfile.USTAR_FORMAT))
    block[124:136] = f"{size:011o}\0".encode() if isinstance(size, int) else size.encode("latin-1").ljust(12, b"\0")
    block[148:156] = b" " * 8
    block[148:156] = f"{sum(block):06o}\0 ".encode()
    return bytes(block)


def pax(record: bytes) -> bytes:
    return header(len(record), tarfile.XHDTYPE) + record.ljust(512, b"\0") + header(0) + b"\0" * 1024


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"x" * 512, "not a valid tar archive"),
        (b"x" * 100, "cut short"),
        (TAR[:2000], "cut short"),
        (TAR[:2600], "in the middle"),
        (b"", "cut short"),
        (header(1 << 32) + b"x" * 512, "in the middle of an entry"),
        (header("\xff" * 12), "of -1 bytes"),
        (header(1 << 30, tarfile.XHDTYPE), "an entry of 1073741824 bytes"),
        (header(1 << 30, tarfile.GNUTYPE_LONGNAME), "an entry of 1073741824 bytes"),
        (pax(b"11 size=-1\n"), "an entry of '-1' bytes"),
        (pax(b"99 path=x\n"), "cannot be read"),
        (pax(b"0 path=x\n"), "cannot be read"),
        (pax(b"path=x\n"), "cannot be read"),
    ],
)
def test_hostile_archives_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(Corrupt, match=message):
        entries(data)


def test_a_decompression_bomb_is_refused_at_the_limit() -> None:
    bomb = zlib.compress(b"\0" * (80 << 20), wbits=31)
    with pytest.raises(Corrupt, match="more than 200 times its size"):
        entries(bomb, "gzip")
    with pytest.raises(Corrupt, match="more bytes than an image may"):
        entries(bomb, "gzip", limits=UnpackLimits(unpacked_bytes=1 << 20))
    with pytest.raises(Corrupt, match="more entries than an image may"):
        entries(layer(*((str(n), b"") for n in range(11))), limits=UnpackLimits(members=10))


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_layer_with_another_compression_than_stated_is_refused(compression: Compression) -> None:
    with pytest.raises(Corrupt):
        entries(b"no such thing", compression)
    packed = PACK[compression](TAR)
    with pytest.raises(Corrupt):
        entries(packed[: len(packed) // 2], compression)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, 4000), st.binary(min_size=1, max_size=20)), max_size=6),
    st.sampled_from(["", "gzip", "zstd"]),
    st.integers(1, 600),
)
def test_damaged_archives_are_entries_or_corrupt(damage: list[tuple[int, bytes]], compression: Compression, size: int) -> None:
    data = bytearray(PACK[compression](layer((LONG, b"hello"), ("b", b"z" * 600))))
    for at, noise in damage:
        at %= len(data)
        data[at : at + len(noise)] = noise
    with contextlib.suppress(Corrupt):
        assert sum(map(len, entries(bytes(data), compression, size, UnpackLimits(unpacked_bytes=1 << 14)).values())) <= 1 << 14
