"""Transfers many blobs with a few threads. Each thread holds one chunk in memory.

The first error of a transfer, or Ctrl-C, stops all transfers.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from model_registry import atomic_files
from model_registry.oci.manifest import Descriptor
from model_registry.stores.base import Store

THREADS = 4


class TransferStopped(Exception):
    """The transfer was stopped because another transfer failed or the command was interrupted."""


def download(store: Store, targets: Iterable[tuple[Descriptor, Path]]) -> None:
    """Write blobs to files. Each file is written completely or not at all. Raises the errors of the store and the files."""

    def fetch(content: Descriptor, path: Path, stop: threading.Event) -> None:
        atomic_files.replace(path, _until(stop, store.blob(content)))

    _run_all([partial(fetch, content, path) for content, path in targets])


def upload(store: Store, contents: Iterable[tuple[Descriptor, Callable[[], BinaryIO]]]) -> None:
    """Push blobs; each stream is opened when its push starts. Raises the errors of the store and the streams."""

    def push(content: Descriptor, source: Callable[[], BinaryIO], stop: threading.Event) -> None:
        with source() as stream:
            store.push_blob(content, cast("BinaryIO", _Stoppable(stream, stop)))

    _run_all([partial(push, content, source) for content, source in contents])


class _Stoppable:
    """A readable file whose `read` raises TransferStopped after the event `stop` is set."""

    def __init__(self, stream: BinaryIO, stop: threading.Event) -> None:
        self._stream = stream
        self._stop = stop
        self.seek = stream.seek
        self.tell = stream.tell
        self.seekable = stream.seekable

    def read(self, size: int = -1) -> bytes:
        if self._stop.is_set():
            raise TransferStopped
        return self._stream.read(size)


def _until(stop: threading.Event, chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        if stop.is_set():
            raise TransferStopped
        yield chunk


def _run_all(tasks: Sequence[Callable[[threading.Event], None]]) -> None:
    """Run all tasks. If a task fails, stop the others, wait for their end, and raise the error of the failed task."""
    stop = threading.Event()
    with ThreadPoolExecutor(THREADS, thread_name_prefix="transfer") as pool:
        running = [pool.submit(task, stop) for task in tasks]
        try:
            done, _ = wait(running, return_when=FIRST_EXCEPTION)
            failed = [future for future in running if future in done and future.exception()]
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    if failed:
        failed[0].result()
