"""Builds the pip command that adds an extra to this distribution.

The distribution is on no package index. If it was installed from a folder, pip finds the extras only in that folder, so the
command names the folder.
"""

import json
import shlex
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from urllib.parse import unquote, urlsplit

NAME = "scorestream"


def install_command(*extras: str) -> str:
    """Return the pip command that adds these extras to the running environment."""
    try:
        return command_for(distribution(NAME), *extras)
    except PackageNotFoundError:  # run from a source tree that is not installed
        return command_for(None, *extras)


def command_for(installed: Distribution | None, *extras: str) -> str:
    """Return the pip command that adds extras to a distribution.

    If direct_url.json (PEP 610) names the folder of the distribution, the command installs from this folder.
    """
    requirement = f"[{','.join(extras)}]"
    folder, editable = _folder(installed)
    if folder is None:
        return f"pip install '{NAME}{requirement}'"
    return f"pip install {'-e ' if editable else ''}{shlex.quote(folder + requirement)}"


def _folder(installed: Distribution | None) -> tuple[str | None, bool]:
    """Return the folder from which a distribution was installed, and whether the installation is editable.

    The folder is None if the distribution was not installed from a folder.
    """
    try:
        origin = json.loads((installed.read_text("direct_url.json") if installed else None) or "{}")
        url = urlsplit(origin["url"])
        if url.scheme == "file" and "dir_info" in origin:
            return unquote(url.path), bool(origin["dir_info"].get("editable"))
    except (ValueError, KeyError, TypeError, AttributeError):
        pass  # another installer's file: the name is all that is known
    return None, False
