"""The virtual environment of the check: created if it is missing, and updated to the pinned requirements.

This module imports only the standard library and supports every Python from 3.11 on, because it runs before any package is
installed.
"""

import hashlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "deploy" / "requirements" / "test.txt"
WITH_TORCH = ROOT / "deploy" / "requirements" / "network.txt"
WITH_GPU = ROOT / "deploy" / "requirements" / "gpu-test.txt"
NATIVE = ROOT / "scorer" / "native"
"""The sources that are compiled when the project is installed."""
OLDEST = (3, 11)
STAMP = ".scorestream-tests"
TRAIN = (sys.executable, "-m", "scorer", "train")
"""The command `scorer train` of this checkout, for a separate process: it restarts itself with pinned variables."""


class Unusable(Exception):
    """The environment cannot be created or used; the message has the cause and a remedy."""


def prepare() -> Path:
    """Create or update the environment with the pinned requirements and the project (editable); return its folder.

    Raises Unusable.
    """
    return _prepared(choose(ROOT), REQUIREMENTS)


def with_gpu() -> Path:
    """Create or update an environment with ONNX Runtime for GPUs instead of CPUs (3 GB on Linux); return its folder.

    Raises Unusable.
    """
    return _prepared(ROOT / ".venv-gpu", WITH_GPU)


def _prepared(folder: Path, requirements: Path) -> Path:
    python = folder / "bin" / "python3"
    if not python.exists():
        make(folder)
    version = _ask(python, "import sys; print(*sys.version_info[:2])")
    if tuple(map(int, version.split())) < OLDEST:
        raise Unusable(
            f"{folder} has Python {version.replace(' ', '.')}, and 3.11 is the oldest that will do: remove that folder"
        )
    stamp = folder / STAMP
    state = _state(requirements)
    if not stamp.is_file() or stamp.read_text() != state:
        install(python, requirements)
        stamp.write_text(state)
    return folder


def with_torch(folder: Path) -> Path:
    """Create or update an environment with torch (5 GB on Linux) beside the environment in `folder`; return its folder.

    The new environment can also import the packages of the environment in `folder`. Raises Unusable.
    """
    beside = folder.with_name(f"{folder.name}-network")
    python, stamp = beside / "bin" / "python3", beside / STAMP
    digest = hashlib.sha256(WITH_TORCH.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == digest:
        return beside
    if not python.exists():
        _say(f"making {beside}")
        _run(str(folder / "bin" / "python3"), "-m", "venv", "--without-pip", str(beside))
    packages = "import sysconfig; print(sysconfig.get_path('purelib'))"
    link = Path(_ask(python, packages), "beside.pth")
    link.write_text(f"import site; site.addsitedir({_ask(folder / 'bin' / 'python3', packages)!r})\n")
    _say(f"installing {WITH_TORCH.relative_to(ROOT)} (5 GB; some minutes the first time)")
    _run(*_pip(python), "--require-hashes", "-r", str(WITH_TORCH))
    stamp.write_text(digest)
    return beside


def _state(requirements: Path) -> str:
    compiled = [*sorted(NATIVE.glob("*.[ch]")), NATIVE / "build_hook.py", NATIVE / "compiler.py"]
    content = b"".join(file.read_bytes() for file in (requirements, ROOT / "pyproject.toml", *compiled))
    return hashlib.sha256(content + os.environ.get("SCORESTREAM_NATIVE", "").encode()).hexdigest()


def choose(root: Path) -> Path:
    """Return the folder of the environment: `.venv`, or `.venv-tests` if `.venv` has ONNX Runtime for GPUs.

    ONNX Runtime for GPUs and ONNX Runtime for CPUs install the same files, so one environment cannot have both.
    """
    folder = root / ".venv"
    with_gpu = any(folder.glob("lib/python3*/site-packages/onnxruntime_gpu-*.dist-info"))
    return root / ".venv-tests" if with_gpu else folder


def make(folder: Path) -> None:
    """Create an empty virtual environment. Raises Unusable if Python is too old, or if Debian's python3-venv is missing."""
    if sys.version_info < OLDEST:
        raise Unusable(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}: run `python3.11 -m tests`")
    if find_spec("ensurepip") is None:
        raise Unusable("this Python cannot make virtual environments: apt-get install -y --no-install-recommends python3-venv")
    _say(f"making {folder}")
    _run(sys.executable, "-m", "venv", str(folder))


def install(python: Path, requirements: Path) -> None:
    """Install exactly the pinned requirements, then the project from its sources. Raises Unusable."""
    if not _ask(python, "from importlib.util import find_spec as f; print('pip' if f('pip') else '')"):
        _run(str(python), "-m", "ensurepip")
    _say(f"installing {requirements.relative_to(ROOT)} (minutes the first time)")
    _run(*_pip(python), "--require-hashes", "-r", str(requirements))
    _run(*_pip(python), "--no-deps", "--no-build-isolation", "--editable", str(ROOT))


def variables(folder: Path) -> dict[str, str]:
    """Return this process's environment variables as they are after activation of the virtual environment.

    PYTHONDONTWRITEBYTECODE is omitted, because stored bytecode halves the start time of every command.
    """
    path = f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "VIRTUAL_ENV": str(folder), "PATH": path}


def _pip(python: Path) -> tuple[str, ...]:
    return (str(python), "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", "--no-input")


def _run(*command: str) -> None:
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        raise Unusable(f"failed: {' '.join(command)}")


def _ask(python: Path, code: str) -> str:
    completed = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        raise Unusable(f"{python} does not work: {completed.stderr.strip()}; remove that virtual environment")
    return completed.stdout.strip()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
