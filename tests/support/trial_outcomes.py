"""Stored outcomes of trials, which all tests of a run share.

In a trial, a scorer loads a version in a separate process first. Most tests serve the same version with the same settings. A
trial of this version takes 0.4 s of CPU time, and one trial for a test run proves as much as one for each test. The product
itself decides whether a stored outcome is still valid (`trial_load.py`).
"""

import json
import os
from pathlib import Path

FOLDER = "trials"
"""The folder of a scorer's cache that holds the outcomes, one file for each version."""


def collect(cache: Path, shared: Path) -> None:
    """Copy the outcomes in a scorer's cache that accept a version into the folder `shared`.

    The latest outcome of a version is kept, because an outcome depends on the settings of its test, too.
    """
    shared.mkdir(exist_ok=True)
    for path in (cache / FOLDER).glob("*.json"):
        content, target = path.read_bytes(), shared / path.name
        if json.loads(content)["refused"] == "" and not (target.exists() and target.read_bytes() == content):
            temporary = shared / f"{path.name}.{os.getpid()}"
            temporary.write_bytes(content)
            temporary.replace(target)


def store(cache: Path, shared: Path) -> None:
    """Copy the outcomes in the folder `shared` into a scorer's cache, unless the cache has outcomes already."""
    folder = cache / FOLDER
    outcomes = list(shared.glob("*.json"))
    if not outcomes or folder.exists():
        return
    for path in (cache, folder):
        path.mkdir(mode=0o700, exist_ok=True)
    for outcome in outcomes:
        (folder / outcome.name).write_bytes(outcome.read_bytes())
