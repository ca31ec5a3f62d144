"""Reads tar archives from image layers as streams: without seeking, in constant memory, with a bound on every length and count.

`tarfile` reads extended headers of any size into memory, so only its parser of the 512-byte header is used. Formats: POSIX
pax and GNU tar, compressed with gzip (RFC 1952) or Zstandard (RFC 8878).
"""

import io
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal, cast

from model_registry.errors import Corrupt
from model_registry.oci.digests import CHUNK, read_chunks

BLOCK = 512
SPARSE = b"GNU.sparse."
MAX_EXTENDED = 1 << 20  # largest size of an extended header, in bytes
MAX_WINDOW = 64 << 20  # bytes of memory that a zstd frame may ask for; `zstd -19` asks for 8 MiB
GZIP_CHUNK = 1 << 16  # the rest after a gzip member is copied, so tiny members must not be read in large pieces
MAX_GZIP_MEMBERS = 1_000_000
FREE_RATIO_BYTES = 64 << 20  # unpacked bytes of a layer before the ratio applies

Compression = Literal["", "gzip", "zstd"]
MemberKind = Literal["file", "folder", "link", "special"]


@dataclass(slots=True)
class UnpackLimits:
    """Limits for the content that may still be read from all layers of an image together. Reading a layer reduces the limits.

    Attributes:
        members: The number of archive entries that may still be read.
        unpacked_bytes: The number of unpacked bytes that may still be read.
        ratio: The largest allowed ratio of unpacked to packed bytes of one layer. Reading does not reduce this limit.
    """

    members: int = 1_000_000
    unpacked_bytes: int = 1 << 37
    ratio: int = 200


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """One entry of a tar archive. `content` must be read before the next entry is requested; an unread rest is skipped."""

    path: str
    kind: MemberKind
    size: int
    content: Iterator[bytes]


class ChunkReader(io.RawIOBase):
    """A readable stream over an iterator of chunks, without seeking. `count` is the number of bytes read so far."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: object) -> int:
        view = memoryview(into).cast("B")  # type: ignore[arg-type]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(view), len(self._rest))
        view[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        self.count += size
        return size


def unpack(packed: Iterator[bytes], compression: Compression, limits: UnpackLimits) -> Iterator[bytes]:
    """Yield the uncompressed bytes of a layer. Raises Corrupt if the layer is damaged or exceeds the limits."""
    source = ChunkReader(packed)
    total = 0
    for chunk in {"": read_chunks, "gzip": _gunzip, "zstd": _unzstd}[compression](source):
        total += len(chunk)
        limits.unpacked_bytes -= len(chunk)
        if limits.unpacked_bytes < 0:
            raise Corrupt("the layers unpack to more bytes than an image may have")
        if total > FREE_RATIO_BYTES and total > limits.ratio * source.count:
            raise Corrupt(f"a layer unpacks to more than {limits.ratio} times its size")
        yield chunk


def _gunzip(source: ChunkReader) -> Iterator[bytes]:
    """Yield the content of a gzip stream, which has several gzip members if a parallel compressor wrote it.

    Zero bytes may follow the last member.
    """
    engine = None
    rest = b""
    streams = 0
    while rest or (rest := source.read(GZIP_CHUNK) or b""):
        if engine is None:
            if not (rest := rest.lstrip(b"\0")):
                continue
            engine = zlib.decompressobj(wbits=31)
            streams = streams + 1
            if streams > MAX_GZIP_MEMBERS:
                raise Corrupt(f"a layer has more than {MAX_GZIP_MEMBERS} gzip members")
        try:
            chunk = engine.decompress(rest, CHUNK)
        except zlib.error as error:
            raise Corrupt(f"a layer is not valid gzip: {error}") from None
        if chunk:
            yield chunk
        rest = engine.unconsumed_tail
        if engine.eof:
            rest = engine.unused_data
            engine = None
    if engine is not None:
        raise Corrupt("a layer ends in the middle of its gzip data")


def _unzstd(source: ChunkReader) -> Iterator[bytes]:
    import zstandard

    engine = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
    with engine.stream_reader(cast(BinaryIO, source), read_across_frames=True, closefd=False) as reader:
        while True:
            try:
                chunk = reader.read(CHUNK)
            except zstandard.ZstdError as error:
                raise Corrupt(f"a layer is not valid zstd: {error}") from None
            if not chunk:
                return
            yield chunk


def members(unpacked: Iterator[bytes], limits: UnpackLimits) -> Iterator[ArchiveMember]:
    """Yield the entries of a tar archive in order, and read the archive to its end.

    Raises Corrupt if the bytes are no tar archive, are truncated or exceed the limits.
    """
    source = ChunkReader(unpacked)
    stated: dict[str, str] = {}
    while (header := _header(source)) is not None:
        limits.members -= 1
        if limits.members < 0:
            raise Corrupt("the layers have more entries than an image may have")
        if header.type in _EXTENDED:
            stated |= _extended(header, _exactly(source, header.size + -header.size % BLOCK))
            continue
        member = _member(header, stated, source)
        stated = {}
        yield member
        for _ in member.content:
            pass
        _exactly(source, -member.size % BLOCK)
    for _ in read_chunks(source):
        pass  # the padding of the last record


_EXTENDED = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_KINDS: dict[bytes, MemberKind] = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.CONTTYPE: "file",
    tarfile.DIRTYPE: "folder",
    tarfile.SYMTYPE: "link",
    tarfile.LNKTYPE: "link",
}
_WITHOUT_CONTENT = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)


def _header(source: ChunkReader) -> tarfile.TarInfo | None:
    """Return the next header; None at the end of the archive. Raises Corrupt if the archive is truncated."""
    # The end is a block of zeros.
    block = _exactly(source, BLOCK)
    if not block.strip(b"\0"):
        return None
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError) as error:
        raise Corrupt(f"a layer is not a valid tar archive: {error}") from None
    if header.size < 0 or (header.type in _EXTENDED and header.size > MAX_EXTENDED):
        raise Corrupt(f"a layer's tar archive has an entry of {header.size} bytes, which is not allowed")
    return header


def _member(header: tarfile.TarInfo, stated: dict[str, str], source: ChunkReader) -> ArchiveMember:
    """Return the entry that a header describes. `stated` has the values of the extended headers before this header."""
    size = 0 if header.type in _WITHOUT_CONTENT else header.size
    if "size" in stated and header.type not in _WITHOUT_CONTENT:
        if not (stated["size"].isascii() and stated["size"].isdigit() and len(stated["size"]) < 20):
            raise Corrupt(f"a layer's tar archive has an entry of {stated['size']!r:.40} bytes, which is not allowed")
        size = int(stated["size"])
    kind: MemberKind = "special" if SPARSE.decode() in stated else _KINDS.get(header.type, "special")
    return ArchiveMember(stated.get("path", header.name), kind, size, _content(source, size))


def _content(source: ChunkReader, size: int) -> Iterator[bytes]:
    while size:
        chunk = source.read(min(size, CHUNK))
        if not chunk:
            raise Corrupt("a layer's tar archive ends in the middle of an entry")
        size -= len(chunk)
        yield chunk


def _extended(header: tarfile.TarInfo, data: bytes) -> dict[str, str]:
    """Return the path and size of the next entry, if an extended header states them. A global extended header is ignored."""
    if header.type in (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK):
        return {}
    if header.type == tarfile.GNUTYPE_LONGNAME:
        return {"path": data[: header.size].rstrip(b"\0").decode("utf-8", "surrogateescape")}
    return _records(data[: header.size])


def _records(data: bytes) -> dict[str, str]:
    """Parse the records of a pax header: `LENGTH KEY=VALUE` and a line feed, where LENGTH counts the whole record in bytes.

    Records with keys that this module does not use are left out.
    """
    values: dict[str, str] = {}
    position = 0
    while position < len(data):
        length, space, _ = data[position : position + 20].partition(b" ")
        end = position + (int(length) if space and length.isdigit() else 0)
        if not (position + len(length) + 2 < end <= len(data) and data[end - 1 : end] == b"\n"):
            raise Corrupt("an extended header of a layer's tar archive cannot be read")
        key, _, value = data[position + len(length) + 1 : end - 1].partition(b"=")
        if key in (b"path", b"size"):
            values[key.decode()] = value.decode("utf-8", "surrogateescape")
        elif key.startswith(SPARSE):
            values[SPARSE.decode()] = ""
        position = end
    return values


def _exactly(source: ChunkReader, size: int) -> bytes:
    parts = []
    remaining = size
    while remaining and (part := source.read(remaining)):
        parts.append(part)
        remaining -= len(part)
    if remaining:
        raise Corrupt("a layer's tar archive is cut short")
    return b"".join(parts)
