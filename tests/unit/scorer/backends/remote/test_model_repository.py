"""The names of versions on model servers, and the files that servers load."""

import shutil
from dataclasses import replace
from pathlib import Path

from model_registry import package
from scorer.backends.remote.model_repository import fingerprint
from tests.support import models


def test_a_folder_that_was_not_pulled_is_identified_by_its_files(tmp_path: Path) -> None:
    first, second = (package.read(models.linear_package(tmp_path / str(factor), factor)) for factor in (1.0, 2.0))
    copy = replace(first, folder=shutil.copytree(first.folder, tmp_path / "copy"))
    assert fingerprint(first) == fingerprint(copy) != fingerprint(second)
    (copy.folder / "card.md").write_text("A linear model.\n")
    assert fingerprint(first) != fingerprint(copy)


def test_a_pulled_version_is_identified_by_its_digest(tmp_path: Path) -> None:
    version = package.read(models.linear_package(tmp_path / "version", 1.0), digest="sha256:" + "a" * 64)
    assert fingerprint(version) == fingerprint(replace(version, folder=tmp_path / "missing"))
    assert fingerprint(version) != fingerprint(replace(version, digest="sha256:" + "b" * 64))
