"""The verbs keygen, sign, verify and attest: their output and exit codes."""

import json
import shutil
from pathlib import Path

import pytest

from model_registry.stores.oci_layout import REF_NAME
from tests.support.attested import comparison
from tests.unit.model_registry.conftest import REPO, MakePackage, answer, onnx_bytes, run

REF = f"{REPO}:1.0.0"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_package: MakePackage) -> Path:
    """Return the working directory, with one pushed version and one pair of keys."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MODEL_REGISTRY_KEY_PASSWORD", raising=False)
    make_package("v1", model=onnx_bytes())
    run("push", "v1", REF)
    run("keygen", "release")
    return tmp_path


def test_keygen_prints_its_files_and_warns_of_a_plain_key(folder: Path) -> None:
    result = run("keygen", "other")
    assert result.stdout.splitlines() == ["other.key", "other.pub"]
    assert "not encrypted" in result.stderr
    assert "never overwritten" in run("keygen", "other", code=3).stderr
    created = json.loads(run("keygen", "third", "--json").stdout)
    assert (created["private"], created["public"], created["encrypted"]) == ("third.key", "third.pub", False)
    assert (folder / "third.pub").read_text().startswith("-----BEGIN PUBLIC KEY-----")


def test_a_password_is_read_from_the_environment_or_a_file(folder: Path) -> None:
    (folder / "password").write_text("secret\n")
    assert run("keygen", "a", "--password-file", "password").stderr == ""
    run("keygen", "b", MODEL_REGISTRY_KEY_PASSWORD="secret")
    assert "there is no password" in run("sign", REF, "--key", "a.key", code=2).stderr
    run("sign", REF, "--key", "a.key", MODEL_REGISTRY_KEY_PASSWORD="secret")
    run("sign", REF, "--key", "b.key", "--password-file", "password")
    assert answer("verify", REF, "--key", "a.pub", "--key", "b.pub")["keys"] == ["a.pub", "b.pub"]
    (folder / "empty").write_text("\n")
    assert "is empty" in run("sign", REF, "--key", "a.key", "--password-file", "empty", code=2).stderr
    assert "No such file" in run("sign", REF, "--key", "a.key", "--password-file", "nowhere", code=2).stderr


def test_sign_and_verify_a_version_and_the_channel_that_names_it() -> None:
    run("promote", REPO, "--to", "1.0.0")
    signed = answer("sign", f"{REPO}:prod", "--key", "release.key")
    assert signed["signature"].startswith("sha256:")
    assert "already has this signature" in run("sign", REF, "--key", "release.key").stdout
    assert answer("verify", f"{REPO}@{signed['digest']}", "--key", "release.pub") == {
        "digest": signed["digest"],
        "keys": ["release.pub"],
    }
    assert "is signed by release.pub" in run("verify", REF, "--key", "release.pub").stdout
    assert [version["version"] for version in answer("list", REPO)["versions"]] == ["1.0.0"]


def test_a_signature_is_valid_for_its_stated_name(folder: Path) -> None:
    assert answer("sign", REF, "--key", "release.key")["names"] == ["flight-delay:1.0.0"]
    (folder / "policy.yaml").write_text("signatures: required\nnames: required\nkeys: [{id: release, file: release.pub}]\n")
    shutil.copytree(folder / "registry" / "flight-delay", folder / "registry" / "other")
    for options in (("--key", "release.pub"), ("--policy", "policy.yaml")):
        run("verify", REF, *options)
        refused = run("verify", "oci:registry/other:1.0.0", *options, code=3).stderr
        assert "as 'flight-delay:1.0.0', not as 'other:1.0.0'" in refused
    run("sign", "oci:registry/other:1.0.0", "--key", "release.key")
    run("verify", "oci:registry/other:1.0.0", "--policy", "policy.yaml")


def test_a_version_under_a_second_tag_is_signed_under_both_names(folder: Path) -> None:
    run("promote", REPO, "--to", "1.0.0")
    index = folder / "registry" / "flight-delay" / "index.json"
    document = json.loads(index.read_text())
    (entry,) = [entry for entry in document["manifests"] if entry["annotations"][REF_NAME] == "1.0.0"]
    document["manifests"].append(entry | {"annotations": {REF_NAME: "1.0.0-eu"}})
    index.write_text(json.dumps(document))
    signed = answer("sign", f"{REPO}:1.0.0-eu", "--key", "release.key")
    assert signed["names"] == ["flight-delay:1.0.0-eu", "flight-delay:1.0.0"]
    (folder / "policy.yaml").write_text("signatures: required\nnames: required\nkeys: [{id: release, file: release.pub}]\n")
    for version in ("1.0.0", "1.0.0-eu"):
        run("promote", REPO, "--to", version)
        assert answer("verify", f"{REPO}:prod", "--policy", "policy.yaml")["digest"] == signed["digest"]


def test_verify_exits_with_3_without_the_signature_of_a_trusted_key() -> None:
    assert "there is no signature" in run("verify", REF, "--key", "release.pub", code=3).stderr
    run("keygen", "other")
    run("sign", REF, "--key", "other.key")
    refused = run("verify", REF, "--key", "release.pub", code=3)
    assert "the signature is not from a trusted key" in refused.stderr
    assert refused.stdout == ""
    for arguments in ((), ("--key", "release.pub", "--policy", "p.yaml")):
        assert "either --key or --policy" in run("verify", REF, *arguments, code=2).stderr
    assert "is not a PEM public key" in run("verify", REF, "--key", "v1/README.md", code=2).stderr


def test_verify_gives_the_result_of_scorers_with_a_policy(folder: Path) -> None:
    (folder / "policy.yaml").write_text("signatures: optional\nkeys: [{id: release, file: release.pub}]\n")
    assert answer("verify", REF, "--policy", "policy.yaml")["keys"] == []
    assert "the policy requires no signature" in run("verify", REF, "--policy", "policy.yaml").stdout
    digest = answer("sign", REF, "--key", "release.key")["digest"]
    assert answer("verify", REF, "--policy", "policy.yaml")["keys"] == ["release"]
    (folder / "policy.yaml").write_text(f"signatures: optional\ndenied: ['{digest}']\n")
    assert "is denied" in run("verify", REF, "--policy", "policy.yaml", code=3).stderr
    assert "nowhere.yaml" in run("verify", REF, "--policy", "nowhere.yaml", code=2).stderr


def test_a_signed_move_is_shown_and_verified() -> None:
    Path("policy.yaml").write_text("signatures: optional\nmoves: signed\nkeys: [{id: ops, file: release.pub}]\n")
    run("promote", REPO, "--to", "1.0.0")
    refused = run("verify", f"{REPO}:prod", "--policy", "policy.yaml", code=3)
    assert "(revision 1) is not signed by a trusted key: its history entry has no signature" in refused.stderr
    assert answer("verify", REF, "--policy", "policy.yaml")["move"] is None, "a version is not moved"
    run("keygen", "stranger")
    for key in ("stranger.key", "release.key"):
        assert answer("promote", REPO, "--to", "1.0.0", "--key", key)["signature"].startswith("sha256:")
    assert answer("rollback", REPO, "--to-revision", "1", "--key", "release.key")["revision"] == 4
    assert answer("verify", f"{REPO}:prod", "--policy", "policy.yaml")["move"] == "ops"
    assert "prod was moved to it by ops" in run("verify", f"{REPO}:prod", "--policy", "policy.yaml").stdout
    moves = answer("history", REPO, "--key", "release.pub")["moves"]
    assert [move["signed_by"] for move in moves] == [None, None, "release.pub", "release.pub"]
    assert [move["signature"] is not None for move in moves] == [False, True, True, True]
    assert "unverified" in run("history", REPO, "--key", "release.pub").stdout
    assert answer("status", REPO, "--key", "release.pub")["channels"][0]["signed"] == "release.pub"
    assert answer("status", REPO)["channels"][0]["signed"] == "unverified"
    assert (
        "add the key to sign with: --key FILE" in run("promote", REPO, "--to", "1.0.0", "--password-file", "x", code=2).stderr
    )


def test_verify_reports_the_comparison_if_the_policy_requires_one(folder: Path) -> None:
    (folder / "policy.yaml").write_text("signatures: optional\ncomparisons: required\nkeys: [{id: runs, file: release.pub}]\n")
    refused = run("verify", REF, "--policy", "policy.yaml", code=3).stderr
    assert "it has no comparison" in refused
    assert "--type comparison" in refused
    digest = answer("sign", REF, "--key", "release.key")["digest"]
    (folder / "c.json").write_text(json.dumps(comparison(digest, "refused")))
    attest = ("attest", REF, "--predicate", "c.json", "--type", "comparison", "--key", "release.key")
    run(*attest)
    assert "signed the verdict 'refused'" in run("verify", REF, "--policy", "policy.yaml", code=3).stderr
    (folder / "c.json").write_text(json.dumps(comparison(digest)))
    run(*attest)
    assert answer("verify", REF, "--policy", "policy.yaml") == {"digest": digest, "keys": ["runs"], "comparison": "runs"}
    assert "it passed a comparison, attested by runs" in run("verify", REF, "--policy", "policy.yaml").stdout


def test_inspect_shows_attestations(folder: Path) -> None:
    predicate = {"dataset": "flights 2013", "metrics": {"auc": 0.93}}
    (folder / "figures.json").write_text(json.dumps(predicate))
    created = answer("attest", REF, "--predicate", "figures.json", "--type", "evaluation", "--key", "release.key")
    (attested,) = answer("inspect", REF)["attestations"]
    assert (attested["type"], attested["predicate"], attested["verified"]) == (created["type"], predicate, False)
    (attested,) = answer("inspect", REF, "--key", "release.pub")["attestations"]
    assert (attested["verified"], attested["key"]) == (True, "release.pub")
    assert "signed by release.pub" in run("inspect", REF, "--key", "release.pub").stdout
    assert "not verified" in run("inspect", REF).stdout


@pytest.mark.parametrize(
    ("predicate", "type_", "fault"),
    [
        ("[]", "evaluation", "is not a JSON object"),
        ("{}", "evaluation", "dataset must name"),
        ("{}", "evaluations", "not a type of attestation"),
        ("\udcff", "evaluation", "is not a JSON object"),
    ],
)
def test_a_wrong_attestation_is_named(folder: Path, predicate: str, type_: str, fault: str) -> None:
    (folder / "p.json").write_bytes(predicate.encode(errors="surrogateescape"))
    rejected = run("attest", REF, "--predicate", "p.json", "--type", type_, "--key", "release.key", code=2)
    assert fault in rejected.stderr
    assert "hint: " in rejected.stderr
    absent = run("attest", REF, "--predicate", "nowhere", "--type", "evaluation", "--key", "release.key", code=2)
    assert "nowhere: No such file" in absent.stderr
