"""Compilation of the C sources in this folder to one shared object. It works with every Python version, without `Python.h`.

This module uses only the standard library, because the build hook imports it before any package is installed.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
OBJECT = HERE / "libscorestream.so"
SOURCES = sorted(HERE.glob("*.c"))
FLAGS = (
    "-std=c11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-ffp-contract=off",
)  # no CPU is named: the object runs on each CPU of the architecture
SWITCH = "SCORESTREAM_NATIVE"
SECONDS = 120


class NotCompiled(Exception):
    """The shared object could not be compiled. The message contains the reason."""


def switched_off() -> bool:
    """Return whether the environment variable `SCORESTREAM_NATIVE=0` disables the native part."""
    return os.environ.get(SWITCH) == "0"


def source_digest() -> str:
    """Return the digest of the C sources. The shared object contains the digest of the sources that it was built from."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(HERE.glob("*.[ch]")))).hexdigest()


def has_c_compiler() -> bool:
    """Return whether the system has a C compiler that can compile the native part."""
    with tempfile.TemporaryDirectory(prefix="scorestream-") as folder:
        try:
            _compile(_cc(), Path(folder, OBJECT.name))
        except NotCompiled:
            return False
        return True


def compile_to(target: Path) -> None:
    """Compile the native part to `target` with the system's compiler or, if that fails, with ziglang. Raises NotCompiled."""
    try:
        _compile(_cc(), target)
    except NotCompiled:
        if not (zig := _zig()):
            raise
        _compile(zig, target)


def _compile(command: Sequence[str], target: Path) -> None:
    """Compile with this command. The target is replaced atomically, and only on success. Raises NotCompiled."""
    if not command:
        raise NotCompiled("there is no C compiler (cc)")
    unfinished = target.with_suffix(".unfinished")
    define = f'-DNATIVE_SOURCE="{source_digest()}"'
    try:
        subprocess.run(
            [*command, *FLAGS, define, "-fPIC", "-shared", "-o", str(unfinished), *map(str, SOURCES)],
            check=True,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        unfinished.replace(target)
    except (OSError, subprocess.SubprocessError) as error:
        unfinished.unlink(missing_ok=True)
        output = (getattr(error, "stderr", None) or str(error)).strip()
        raise NotCompiled(f"{shlex.join(command)} failed: {output[:500]}") from error


def _cc() -> list[str]:
    """Return the command in the variable CC, else `cc`; an empty list if this compiler is not installed."""
    command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    return command if shutil.which(command[0]) else []


def _zig() -> list[str]:
    """Return the command of ziglang's C compiler; an empty list if ziglang is not installed.

    The command sets a generic CPU, because zig compiles for the CPU of the build machine by default.
    """
    return [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"] if find_spec("ziglang") else []
