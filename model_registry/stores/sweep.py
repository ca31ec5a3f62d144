"""Which blobs of an OCI image layout nothing needs any more. Reads the blobs' folder, deletes nothing."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from model_registry.errors import Corrupt
from model_registry.oci import digest as digests
from model_registry.oci import manifest


def unneeded(blobs: Path, roots: Iterable[str], older_than: float) -> Iterator[Path]:
    """Files that no manifest in `roots` leads to, and that were written before `older_than` (Unix seconds).

    What is younger may be part of a push that is under way; so is what a younger manifest names. Partial files of processes
    that died are among the files.
    """
    entries = {path.name: path.stat() for path in blobs.iterdir()}
    young = {name for name, found in entries.items() if found.st_mtime >= older_than}
    needed: set[str] = set()
    for name in [*(digests.hex_of(root) for root in roots), *young]:
        _reach(blobs, name, needed)
    for name in sorted(entries.keys() - needed):
        yield blobs / name


def _reach(blobs: Path, start: str, needed: set[str]) -> None:
    """Add a blob and all that it names, if it is a manifest."""
    todo = [start]
    while todo:
        name = todo.pop()
        if name in needed:
            continue
        needed.add(name)
        path = blobs / name
        try:
            if path.stat().st_size > manifest.MAX_BYTES:
                continue
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        if data[:1] != b"{":
            continue
        try:
            todo += [digests.hex_of(content.digest) for content in manifest.named(data)]
        except Corrupt:
            continue  # JSON, but no manifest: a signature.json
