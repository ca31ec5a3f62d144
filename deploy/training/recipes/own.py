"""A user's own recipe: a command that trains under the file contract of `contract.py`, with the code that it names.

The module prepares the command; `training.search` starts it.
"""

import errno
import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from model_registry.package.signature import Signature
from publisher.errors import REFUSED, USAGE, Fatal
from training.recipes import Params, check_signature
from training.settings import RecipeSection
from training.snapshot.target import Target

DEPLOY = Path(__file__).resolve().parents[2]
PYTHONS = ("python", "python3")
SECRETS = ("MODEL_REGISTRY_", "SCORER_", "TRAINING_", "PUBLISHER_")
"""Prefixes of environment variables that are not passed to a command: settings of the product, including passwords."""
OMITTED = ("__pycache__", ".git")
MAX_BYTES = 100_000_000
"""The limit of the size of a recipe's code, which each run copies."""


class Own:
    """A recipe that is a command (implements `training.recipes.Recipe`)."""

    name = "own"

    def check(self, signature: Signature, target: Target) -> None:
        del target  # the recipe itself must support it
        check_signature.check_inputs(signature, self.name)

    def parameters(self, stated: Params) -> Params:
        return dict(stated)

    def suggest(self, trial: Any) -> Params:
        del trial  # only `search.space` declares parameters
        return {}


def code(recipe: RecipeSection) -> dict[str, str]:
    """Return the SHA-256 of each file of the recipe's code by its path relative to `recipe.folder`.

    The code consists of the files and folders below `recipe.folder` to which arguments of the command refer.

    Raises:
        Fatal: Exit code 2 if an argument names a file outside of `recipe.folder`, if the code is too large, or if the
            FILE of a command `python FILE` does not exist.
    """
    digests = {}
    total = 0
    folder = _folder(recipe)
    for path in _code_paths(recipe):
        files = sorted(_files(path)) if path.is_dir() else [path]
        for file in files:
            try:
                total += _size(file)
                content = file.read_bytes() if total <= MAX_BYTES else b""
            except OSError as error:
                raise Fatal(f"recipe.command: {file} cannot be read: {error.strerror}", "check the file", USAGE) from None
            if total > MAX_BYTES:
                hint = "name single files, or install the code as a package of the environment"
                raise Fatal(f"recipe.command: its files have more than {MAX_BYTES:,} bytes", hint, USAGE)
            digests[file.relative_to(folder).as_posix()] = hashlib.sha256(content).hexdigest()
    return digests


def copy_code(recipe: RecipeSection, expected: Mapping[str, str], target: Path) -> None:
    """Copy the code to a folder, unless the folder has it. `expected` is the result of `code` when the run began.

    Raises:
        Fatal: Exit code 3 if the code has changed since the run began, or if the folder cannot be written.
    """
    if target.is_dir():
        return
    if code(recipe) != expected:
        raise Fatal("the recipe's files have changed since the run began", "start a new run: run --new", REFUSED)
    part = target.with_name(f".{target.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for name in expected:
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(_folder(recipe) / name, part / name)
        part.rename(target)
    except OSError as error:
        raise Fatal(
            f"{error.filename or target} cannot be written: {error.strerror}",
            "check the disk space and the permissions, and run again",
            REFUSED,
        ) from None


def command(recipe: RecipeSection, copy: Path, processes: int = 0) -> list[str]:
    """Return the command line that starts the recipe from the copy of its code in the folder `copy`.

    `python` is replaced by this interpreter. If `recipe.launcher` is set and `processes` is not 0, the command line starts the
    launcher, which starts this number of processes.
    """
    folder = _folder(recipe)
    paths = {path.relative_to(folder).as_posix() for path in _code_paths(recipe)}
    words = [str(copy / word) if os.path.normpath(word) in paths else word for word in recipe.command]
    python = words[0] in PYTHONS
    if python:
        words[0] = sys.executable
    if not processes or recipe.launcher is None:
        return words
    if recipe.launcher != "torchrun":
        return [word.replace("{workers}", str(processes)) for word in recipe.launcher] + words
    agent = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    agent += [f"--nproc-per-node={processes}", "--max-restarts=0"]
    return [*agent, *words[1:]] if python else [*agent, "--no-python", *words]


def environment(recipe: RecipeSection, environ: Mapping[str, str], gpus: range | None) -> dict[str, str]:
    """Return the environment variables of the command.

    These are the variables of this process without settings of the product, then `recipe.env`.

    Args:
        recipe: The recipe.
        environ: The variables of this process.
        gpus: The GPUs that the command may use, as indices into the GPUs of this process; None for all.
    """
    variables = {name: value for name, value in environ.items() if not name.startswith(SECRETS)}
    paths = [str(DEPLOY), str(DEPLOY.parent)]
    if inherited := variables.get("PYTHONPATH"):
        paths.insert(0, inherited)
    variables["PYTHONPATH"] = os.pathsep.join(paths)
    variables["PYTHONUNBUFFERED"] = "1"
    variables["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # without this value cuBLAS results differ between runs
    if gpus is not None:
        visible = [name for name in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(visible[at] if at < len(visible) else str(at) for at in gpus)
    return variables | dict(recipe.env)


def _folder(recipe: RecipeSection) -> Path:
    return (recipe.folder or Path.cwd()).resolve()


def _code_paths(recipe: RecipeSection) -> Iterator[Path]:
    """Yield the files and folders below `recipe.folder` to which arguments of the command refer."""
    folder = _folder(recipe)
    for at, word in enumerate(recipe.command):
        # The path stays as it is written: in a volume of a ConfigMap, a file is a link into a folder with a date as its name.
        path = Path(os.path.normpath(folder / word))
        if Path(word).is_absolute() or path == folder or not _exists(path):
            if at == 1 and recipe.command[0] in PYTHONS and word.endswith(".py") and not _exists(Path(word)):
                raise Fatal(f"recipe.command: there is no file {word} in {folder}", "check the name of the script", USAGE)
            continue
        if not path.is_relative_to(folder) or not path.resolve().is_relative_to(folder):
            hint = "move it below this folder, or set recipe.folder to a folder that contains it"
            raise Fatal(f"recipe.command: {word} is outside of {folder}", hint, USAGE)
        yield path


def _exists(path: Path) -> bool:
    """Return whether a file or folder exists; False for a name that is too long, such as a script after `-c`."""
    try:
        return path.exists()
    except OSError:
        return False


def _size(file: Path) -> int:
    """Return the size of a file. Raises OSError if it is not a regular file: a pipe could block for ever."""
    state = file.stat()
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(file))
    return state.st_size


def _files(folder: Path) -> Iterator[Path]:
    for directory, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in OMITTED and not name.startswith(".."))
        yield from (Path(directory, name) for name in names if not name.endswith(".pyc"))
