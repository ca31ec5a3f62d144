"""The command `copy`: its output, its exit codes and its warning about the model's name."""

import json
from pathlib import Path

import pytest

from tests.unit.model_registry.conftest import REPO, answer, onnx_bytes, run, write_package

BACKUP = "oci:backup/flight-delay"


@pytest.fixture
def pushed(folder: Path) -> str:
    """Push a version, promote it, and return its digest."""
    package = write_package(folder, "package", model=onnx_bytes(b"one"))
    digest = answer("push", str(package), f"{REPO}:1.0.0")["digest"]
    run("promote", REPO, "--to", "1.0.0")
    return str(digest)


def test_a_dry_run_shows_the_transfers_of_a_copy_and_writes_nothing(folder: Path, pushed: str) -> None:
    planned = answer("copy", REPO, BACKUP, "--dry-run")
    assert not (folder / "backup").exists()
    assert "would be copied: 1 versions" in run("copy", REPO, BACKUP, "--dry-run").stdout
    copied = answer("copy", REPO, BACKUP)
    assert planned == copied | {"dry_run": True}
    assert copied["versions"] == [{"version": "1.0.0", "digest": pushed}]
    assert copied["channels"] == [{"channel": "prod", "revision": 1, "version": "1.0.0", "digest": pushed}]
    assert (copied["history"], copied["referrers"]) == (["_h.prod.000001"], [])
    assert copied["source"] == f"oci:{folder}/registry/flight-delay"
    assert copied["bytes"] > 0
    assert answer("status", BACKUP)["channels"] == answer("status", REPO)["channels"]


@pytest.mark.usefixtures("pushed")
def test_the_text_output_has_counts_and_revisions(folder: Path) -> None:
    first = run("copy", REPO, BACKUP).stdout
    assert "prod -> 1.0.0  revision 1" in first
    assert "copied: 1 versions, 0 signatures and attestations, 1 history entries, 1 channels" in first
    assert run("copy", REPO, BACKUP).stdout == "the destination has everything already\n"
    assert json.loads(run("copy", REPO, BACKUP, "--json").stdout)["blobs"] == 0
    assert folder.exists()


@pytest.mark.usefixtures("pushed")
def test_signatures_under_another_name_get_a_warning(folder: Path) -> None:
    run("keygen", "signing")
    assert run("copy", REPO, "oci:unsigned").stderr == ""
    run("sign", f"{REPO}:1.0.0", "--key", "signing.key", MODEL_REGISTRY_KEY_PASSWORD="")
    warned = run("copy", REPO, "oci:2026-11-27").stderr
    assert "the signatures are about the model 'flight-delay'" in warned
    assert "whose path ends with /flight-delay" in warned
    assert run("copy", REPO, BACKUP).stderr == ""
    assert (folder / "2026-11-27" / "index.json").is_file()


@pytest.mark.usefixtures("pushed")
def test_wrong_arguments_and_refused_copies_have_their_exit_codes() -> None:
    assert "source and destination are both" in run("copy", REPO, REPO, code=2).stderr
    assert "write oci:" in run("copy", f"{REPO}:1.0.0", BACKUP, code=2).stderr
    assert "no OCI layout" in run("copy", "oci:absent/flight-delay", BACKUP, code=4).stderr
    run("copy", REPO, BACKUP)
    run("promote", BACKUP, "--to", "1.0.0")
    refused = run("copy", REPO, BACKUP, code=3).stderr
    assert "'prod' is newer in" in refused
    assert "hint: it was moved there after the last copy" in refused
