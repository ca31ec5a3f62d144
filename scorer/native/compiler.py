"""Compile the native part to one shared object for every Python version: it does not include `Python.h`.

Standard library only. The build hook uses this module before anything is installed.
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
    """There is no shared object; the message has the reason."""


def switched_off() -> bool:
    """Return whether the environment disables the native part: `SCORESTREAM_NATIVE=0`."""
    return os.environ.get(SWITCH) == "0"


def source_digest() -> str:
    """Return the digest of the sources, which the shared object contains."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(HERE.glob("*.[ch]")))).hexdigest()


def cc_works() -> bool:
    """Return whether the system has a C compiler that works."""
    with tempfile.TemporaryDirectory(prefix="scorestream-") as folder:
        try:
            _compile(_cc(), Path(folder, OBJECT.name))
        except NotCompiled:
            return False
        return True


def compile_to(target: Path) -> None:
    """Compile to a file with the system's compiler, else with ziglang. Raises NotCompiled."""
    try:
        _compile(_cc(), target)
    except NotCompiled:
        if not (zig := _zig()):
            raise
        _compile(zig, target)


def _compile(command: Sequence[str], target: Path) -> None:
    """Compile with one compiler, atomically."""
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
    """Return `cc`, or the command in the variable CC; empty if there is none."""
    command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    return command if shutil.which(command[0]) else []


def _zig() -> list[str]:
    """Return zig's command with a generic CPU: by default zig compiles for the CPU that it runs on."""
    return [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"] if find_spec("ziglang") else []
