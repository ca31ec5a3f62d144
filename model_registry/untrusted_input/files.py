"""Opens files from untrusted folders, and rejects files that are not regular files."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


class NotRegular(OSError):
    """The path names something other than a regular file: a FIFO, a device, a socket or a folder."""


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading without blocking on special files.

    An ordinary open of a FIFO without a writer blocks forever. O_NONBLOCK avoids the wait; regular files ignore the flag.

    Raises:
        NotRegular: The path names anything but a regular file.
        OSError: In the same cases as `open`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket, or a device without a driver
            raise NotRegular(errno.EINVAL, "it is not a regular file", str(path)) from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotRegular(errno.EINVAL, "it is not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
