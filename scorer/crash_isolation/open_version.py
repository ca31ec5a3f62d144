"""Open one version for a CLI command: find its package in the registry or in a folder, and load it with a scorer's checks."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model_registry import package as packages
from model_registry.oci.digests import from_bytes
from model_registry.package import Package
from publisher.errors import REFUSED, Fatal
from scorer.backends.base import ModelRefused
from scorer.crash_isolation.trial_load import tried_loader
from scorer.models.loaded_model import LoadedModel
from scorer.models.registry_access import pull_version
from scorer.settings import Settings


@dataclass(frozen=True, slots=True)
class NamedPackage:
    """The package of a version.

    Attributes:
        package: the package.
        name: the name of the version for messages: `name:version@digest`, or the path of the folder.
        is_folder: whether the package is a local folder. The digest of such a package does not depend on its content.
    """

    package: Package
    name: str
    is_folder: bool


def find_package(settings: Settings, name_or_folder: str | None = None) -> NamedPackage:
    """Return the package of a version.

    Args:
        settings: the settings of the scorer.
        name_or_folder: a tag or a digest in `model.source`, or a package folder; None for the champion of `model.tag`.

    Raises:
        RegistryError: the version does not exist, is not admitted or cannot be pulled, or the folder is no valid package.
    """
    if name_or_folder is None:
        return _pull(settings)
    folder = Path(name_or_folder)
    if folder.is_dir():
        digest = from_bytes(str(folder.resolve()).encode())
        package = packages.read(folder, name=folder.resolve().name, version="0", digest=digest)
        return NamedPackage(package, str(folder), is_folder=True)
    model = settings.model.model_copy(update={"tag": name_or_folder})
    with packages.suggest_folder(name_or_folder):
        return _pull(settings.model_copy(update={"model": model}))


def _pull(settings: Settings) -> NamedPackage:
    package, resolution = pull_version(settings)
    return NamedPackage(package, f"{package.name}:{resolution.version}@{resolution.digest}", is_folder=False)


@contextlib.contextmanager
def open_version(settings: Settings, named: NamedPackage) -> Iterator[LoadedModel]:
    """Load a version with the same checks as a scorer, and close the model at the end of the `with` block.

    Raises:
        Fatal: With exit code 3 if the version fails a check, and with exit code 4 if its model server is unavailable.
    """
    try:
        loaded = tried_loader(settings, remember=not named.is_folder)(named.package)
    except ModelRefused as error:
        raise Fatal(f"{named.name} is rejected: {error}", "push a version that passes these checks", REFUSED) from error
    with contextlib.closing(loaded.model):
        yield loaded
