"""Stored outcomes of trials, which the tests of one process share.

In a trial, a scorer loads a version in a separate process first. Most tests serve the same version with the same settings. A
trial of this version takes 0.4 s of CPU time, and one trial for each process of a test run proves as much as one for each test.
The product itself decides whether a stored outcome is still valid (`trial_load.py`).
"""

import json
from collections.abc import Mapping
from pathlib import Path

FOLDER = "trials"
"""The folder of a scorer's cache that holds the outcomes, one file for each version."""


def collect(cache: Path) -> dict[str, bytes]:
    """Return the outcomes in a scorer's cache that accept a version, by file name."""
    contents = {path.name: path.read_bytes() for path in (cache / FOLDER).glob("*.json")}
    return {name: content for name, content in contents.items() if json.loads(content)["refused"] == ""}


def store(cache: Path, outcomes: Mapping[str, bytes]) -> None:
    """Write outcomes into a scorer's cache, unless the cache has outcomes already."""
    folder = cache / FOLDER
    if not outcomes or folder.exists():
        return
    for path in (cache, folder):
        path.mkdir(mode=0o700, exist_ok=True)
    for name, content in outcomes.items():
        (folder / name).write_bytes(content)
