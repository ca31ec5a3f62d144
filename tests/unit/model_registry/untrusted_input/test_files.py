"""Files from others: no read waits for a FIFO, a device, a socket or a folder."""

import os
import socket
from pathlib import Path

import pytest

from model_registry.untrusted_input.files import NotRegular, open_regular


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [fifo, unix_socket, device, folder])
def test_a_file_that_is_not_regular_is_named(make: "object", tmp_path: Path) -> None:
    path = tmp_path / "x"
    make(path)  # type: ignore[operator]
    with pytest.raises(NotRegular) as raised:
        open_regular(path)
    assert raised.value.filename == str(path)


def test_a_regular_file_and_a_link_to_one_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").symlink_to("a")
    for name in "ab":
        with open_regular(tmp_path / name) as stream:
            assert stream.read() == b"x"
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "c")
