"""The installed commands: each checks for a conflicting distribution, then runs its program.

Kubeflow's client, the distribution `model-registry`, also installs an import package `model_registry`. If both are installed,
the later one overwrites files of the other.
"""

# Until the check is done, this module imports only the standard library, because any module of `model_registry` may be a file
# of the other distribution.

import base64
import hashlib
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "model_registry"
DISTRIBUTION = "scorestream"
RIVAL = "model-registry"
"""The one other distribution on the package index that is known to install the package `model_registry`."""
ROOT = Path(__file__).resolve().parents[1]
"""The folder that contains the packages of this distribution."""
USAGE = 2
REMEDY = f"both install the Python package {PACKAGE}; install each into an environment of its own"


def scorer() -> None:
    """Run the command `scorer`."""
    check_packages()
    from scorer.cli import main

    main()


def publisher() -> None:
    """Run the command `publisher`."""
    check_packages()
    from publisher.cli import main

    main()


def model_registry() -> None:
    """Run the command `model-registry`."""
    check_packages()
    from model_registry.cli import main

    main()


def check_packages() -> None:
    """End the process with code 2 if another distribution has overwritten or hides our package `model_registry`.

    Only a warning is printed if our distribution has overwritten modules of the other one.
    """
    try:
        own = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:  # run from a source tree
        return
    for other in _rivals(own):
        names = f"{other.name} {other.version}", f"{own.name} {own.version}"
        lost, taken = _overwritten(own, other)
        if lost or _hides(other):
            verb = f"has overwritten {lost[0]} of" if lost else f"hides the package {PACKAGE} of"
            print(f"error: the distribution {names[0]} {verb} {names[1]}: {REMEDY}", file=sys.stderr)
            sys.exit(USAGE)
        if taken:
            print(f"warning: {names[1]} has overwritten {taken[0]} of {names[0]}: {REMEDY}", file=sys.stderr)


def _rivals(own: metadata.Distribution) -> Iterator[metadata.Distribution]:
    """Yield the other distributions that install a package `model_registry`."""
    # Reading the file lists of all installed distributions takes 0.3 s. It is done only if Python would import another package
    # than ours. Otherwise only Kubeflow's distribution is checked.
    candidates = metadata.distributions(name=RIVAL) if _is_ours(own) else metadata.distributions()
    yield from (one for one in candidates if one.name != own.name and _recorded(one))


def _is_ours(own: metadata.Distribution) -> bool:
    """Return whether `import model_registry` would import the package of this distribution."""
    # The package is ours if it lies in the folder of this installation, and its `__init__.py` has the hash in RECORD. The
    # RECORD of an editable installation does not list the files; then only the folder is compared.
    imported = _imported()
    recorded = _recorded(own).get(f"{PACKAGE}/__init__.py")
    return imported is None or (imported.parents[1] == ROOT and recorded in (None, _digest(imported)))


def _imported() -> Path | None:
    """Return the path of the `__init__.py` that `import model_registry` would load; None if there is no such package."""
    spec = find_spec(PACKAGE)
    return None if spec is None or spec.origin is None else Path(spec.origin).resolve()


def _overwritten(own: metadata.Distribution, other: metadata.Distribution) -> tuple[list[str], list[str]]:
    """Find the files that both distributions install with different contents, and check which content is on the disk.

    Returns:
        The files with the content of `other`, and the files with the content of `own`.
    """
    ours = _recorded(own)
    theirs = _recorded(other)
    lost = []
    taken = []
    for path in sorted(path for path in ours.keys() & theirs.keys() if ours[path] != theirs[path]):
        digest = _digest(Path(str(own.locate_file(path))))
        if digest == ours[path]:
            taken.append(path)
        elif digest == theirs[path] or not theirs[path]:
            lost.append(path)
    return lost, taken


def _hides(other: metadata.Distribution) -> bool:
    """Return whether `import model_registry` would import the package of the distribution `other`.

    This happens if the folder of `other` precedes the folder of this distribution in Python's search path.
    """
    imported = _imported()
    if imported is None or imported.parents[1] == ROOT:
        return False
    return imported.parents[1] == Path(str(other.locate_file(""))).resolve()


def _recorded(distribution: metadata.Distribution) -> dict[str, str]:
    """Return the hash of each module of the package in a distribution's RECORD, by path; empty if RECORD has none."""
    modules = (file for file in distribution.files or [] if file.parts[0] == PACKAGE and file.suffix == ".py")
    return {module.as_posix(): module.hash.value if module.hash else "" for module in modules}


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file in the form of a RECORD (PEP 376); empty if the file does not exist."""
    if not path.is_file():
        return ""
    return base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
