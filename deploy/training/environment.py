"""The environment of a run: variables for reproducible computations, and a digest of the installed packages.

With the variables in `PINS`, every machine with AVX2 (x86-64-v3, from 2013 on) trains the same model, bit for bit.
"""

# Numeric libraries select code by the type of the processor, and split sums by the number of threads. The processor and the
# number of threads therefore change the last bits of sums, and thereby the trained models. With the variables in `PINS`, every
# machine with AVX2 (x86-64-v3, from 2013 on) runs the same code:
#
# - OpenBLAS: the kernels for Haswell, one thread. Core type and number of threads both change bytes.
# - OpenMP: one thread by default. LightGBM and torch get an explicit number of threads and give the same bytes for any number.
#   Waiting threads sleep: by default they spin, and the training then takes ten times as long on a busy machine.
# - ATen and oneDNN (torch), MKL: AVX2, one thread.
# - NumPy: no AVX-512, whose exponential and logarithm differ in the last bit.
# - Python: no random hashes, so that a set has a fixed order.

import hashlib
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

import model_registry
import publisher
import scorer

PINS = {
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OMP_DYNAMIC": "FALSE",
    "OMP_WAIT_POLICY": "PASSIVE",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "MKL_NUM_THREADS": "1",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "PYTHONHASHSEED": "0",
}
INSTALLERS = ("pip", "setuptools", "wheel", "uv")
"""Packages that the digest omits: installers do not compute, and their versions differ between machines."""
OURS = "scorestream"
PACKAGES = tuple(Path(package.__file__ or "").parent for package in (model_registry, publisher, scorer))
SOURCES = (".py", ".c", ".h")
NOTED = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json")
"""Files of a distribution's `.dist-info` that depend on how and from where the distribution was installed."""


def pinned(environ: Mapping[str, str]) -> dict[str, str] | None:
    """Return `environ` with the variables of `PINS` set; None if they already have these values."""
    if all(environ.get(name) == value for name, value in PINS.items()):
        return None
    return {**environ, **PINS}


def pin() -> None:
    """Restart this process with the environment variables in `PINS`, unless all of them are set.

    Setting the variables in the running process is too late, because libraries read them when they are loaded.
    """
    if environ := pinned(os.environ):
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environ)


def digest() -> str:
    """Return the digest (`sha256:...`) of the Python version, the installed distributions, and the sources of this program.

    Machines with the same wheels have the same digest, wherever the wheels are installed.
    """
    hashing = hashlib.sha256(f"{platform.python_implementation()} {platform.python_version()}\n".encode())
    for line in distributions(metadata.distributions()):
        hashing.update(f"{line}\n".encode())
    for folder in sorted((*PACKAGES, Path(__file__).parent), key=lambda folder: folder.name):
        for line in sources(folder):
            hashing.update(f"{folder.name}/{line}\n".encode())
    return f"sha256:{hashing.hexdigest()}"


def distributions(installed: Iterable[metadata.Distribution]) -> list[str]:
    """Return one line per distribution, sorted by name: its name, its version, and the digest of its list of files.

    Installers and this project's own distribution are omitted.
    """
    lines = set()
    for distribution in installed:
        name = str(distribution.metadata["Name"]).lower().replace("_", "-").replace(".", "-")
        if name not in (*INSTALLERS, OURS):
            files = "\n".join(sorted(recorded(distribution.read_text("RECORD") or "")))
            lines.add(f"{name} {distribution.version} {hashlib.sha256(files.encode()).hexdigest()}")
    return sorted(lines)


def recorded(record: str) -> Iterator[str]:
    """Yield the lines of a wheel's `RECORD` file that do not depend on the machine.

    Bytecode, scripts and files that the installer wrote are omitted.
    """
    for line in record.splitlines():
        path = Path(line.partition(",")[0].strip('"'))
        outside = path.is_absolute() or ".." in path.parts
        noted = path.parent.suffix == ".dist-info" and path.name in NOTED
        if line and not outside and not noted and "__pycache__" not in path.parts and path.suffix != ".pyc":
            yield line


def sources(folder: Path) -> list[str]:
    """Return one line per source file below a folder, sorted by path: the path and the SHA-256 of the file."""
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix in SOURCES)
    return [f"{path} {hashlib.sha256((folder / path).read_bytes()).hexdigest()}" for path in paths]
