"""The model-registry command: what it prints where, and what it ends with."""

import json
import os
import signal
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from model_registry import manifest
from model_registry.cli import app
from model_registry.stores.layout import LayoutStore
from tests import models
from tests.unit.registry.conftest import MakePackage, onnx_bytes

REPO = "oci:registry/flight-delay"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_package: MakePackage) -> Path:
    """The working directory, with two packages in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    monkeypatch.setenv("LOGNAME", "zoe")
    make_package("v1", model=onnx_bytes(b"one"))
    make_package("v2", model=onnx_bytes(b"two"))
    return tmp_path


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result


def answer(*arguments: str) -> Any:
    """What a command prints with --json."""
    result = run(*arguments, "--json")
    assert result.stderr == ""
    return json.loads(result.stdout)


@pytest.fixture
def pushed() -> list[str]:
    """The digests of 1.0.0 and 2.0.0."""
    return [answer("push", folder, f"{REPO}:{version}")["digest"] for folder, version in (("v1", "1.0.0"), ("v2", "2.0.0"))]


def test_push_prints_what_it_stored(folder: Path) -> None:
    result = run("push", "v1", f"{REPO}:1.0.0")
    name, _, digest = result.stdout.strip().partition("@")
    assert name == "flight-delay:1.0.0"
    assert LayoutStore(folder / "registry" / "flight-delay").resolve("1.0.0").digest == digest
    pushed = answer("push", "v1", f"{REPO}:1.0.0")
    assert (pushed["name"], pushed["version"], pushed["digest"]) == ("flight-delay", "1.0.0", digest)
    assert pushed["golden_examples"] == 1
    assert pushed["ran_with_onnxruntime"]
    assert pushed["signature_derived"] is False


def test_push_records_source_date_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1378015200")
    run("push", "v1", f"{REPO}:1.0.0")
    assert answer("inspect", f"{REPO}:1.0.0")["created"] == "2013-09-01T06:00:00+00:00"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    assert "SOURCE_DATE_EPOCH is 'yesterday'" in run("push", "v2", f"{REPO}:2.0.0", code=2).stderr


def test_push_records_what_it_is_told_and_what_the_version_needs(folder: Path) -> None:
    told = ["--source", "https://git.example.com/x", "--revision", "4711abc", "--licenses", "Apache-2.0"]
    run("push", "v1", f"{REPO}:1.0.0", *told, "--annotation", "org.example.auc=0.91", "--device", "cuda", "--device", "cpu")
    store = LayoutStore(folder / "registry" / "flight-delay")
    notes = manifest.parse_version(store.manifest(store.resolve("1.0.0").digest)).annotations
    assert notes == {
        "org.opencontainers.image.title": "flight-delay",
        "org.opencontainers.image.version": "1.0.0",
        "org.opencontainers.image.source": "https://git.example.com/x",
        "org.opencontainers.image.revision": "4711abc",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.example.auc": "0.91",
        "io.scorestream.needs.opset": "ai.onnx=17",
        "io.scorestream.needs.ir": "8",
        "io.scorestream.needs.onnxruntime": "1.23",
        "io.scorestream.needs.device": "cpu,cuda",
    }


@pytest.mark.parametrize(
    ("pair", "error"),
    [
        ("auc", "--annotation auc"),
        ("=1", "--annotation =1"),
        ("io.scorestream.needs.device=cpu", "--annotation io.scorestream"),
        ("org.opencontainers.image.version=2", "cannot be chosen"),
    ],
)
def test_annotations_that_cannot_be_chosen(pair: str, error: str) -> None:
    assert error in run("push", "v1", f"{REPO}:1.0.0", "--annotation", pair, code=2).stderr


def test_push_makes_an_image_on_nothing_or_on_a_base() -> None:
    first = answer("push", "v1", f"{REPO}:1.0.0", "--image", "scratch")["digest"]
    second = answer("push", "v2", f"{REPO}:2.0.0", "--image", f"{REPO}:1.0.0")["digest"]
    assert first != second
    run("pull", f"{REPO}:2.0.0", "out")
    assert Path("out/model.onnx").read_bytes() == onnx_bytes(b"two")
    assert [(v["version"], v["digest"]) for v in answer("list", REPO)["versions"]] == [("1.0.0", first), ("2.0.0", second)]
    found = answer("inspect", f"{REPO}:2.0.0", "--diff", "1.0.0")
    assert (found["added"], found["compatible"]) == (["layer 2"], False)
    assert "which version?" in run("push", "v1", f"{REPO}:3.0.0", "--image", REPO, code=2).stderr
    run("push", "v1", f"{REPO}:3.0.0")
    assert "is no image" in run("push", "v1", f"{REPO}:4.0.0", "--image", f"{REPO}:3.0.0", code=3).stderr


def test_push_derives_a_signature_where_the_model_leaves_no_choice(folder: Path) -> None:
    (folder / "v1" / "signature.json").unlink()
    (folder / "v1" / "golden.jsonl").write_text('{"event": {"x": [1.5, 0]}, "score": [0.25, 0.25], "tolerance": 1e-4}\n')
    result = run("push", "v1", f"{REPO}:1.0.0", "--json")
    assert json.loads(result.stdout)["signature_derived"] is True
    assert "the version gets the signature" in result.stderr
    assert answer("inspect", f"{REPO}:1.0.0")["signature"]["output"] == {"tensor": "p"}
    assert not (folder / "v1" / "signature.json").exists()


def test_push_prints_a_skeleton_where_it_leaves_a_choice(folder: Path) -> None:
    (folder / "v1" / "signature.json").unlink()
    models.classifier(folder / "v1" / "model.onnx")
    result = run("push", "v1", f"{REPO}:1.0.0", code=3)
    assert json.loads(result.stdout)["output"] == {"tensor": "probabilities", "index": "FILL IN"}
    assert "which output is the score" in result.stderr
    assert not (folder / "registry").exists()
    (folder / "v1" / "signature.json").write_text(result.stdout.replace('"FILL IN"', "1"))
    (folder / "v1" / "golden.jsonl").unlink()
    run("push", "v1", f"{REPO}:1.0.0")


def test_push_refuses_what_no_scorer_would_serve(folder: Path) -> None:
    (folder / "v1" / "golden.jsonl").write_text('{"event": {"a": 1.5}, "score": 0.9, "tolerance": 1e-4}\n')
    assert "golden example 1 must score 0.9" in run("push", "v1", f"{REPO}:1.0.0", code=3).stderr
    (folder / "v1" / "model.onnx").write_bytes(b"weights")
    assert "is no ONNX file" in run("push", "v1", f"{REPO}:1.0.0", code=3).stderr
    assert not (folder / "registry").exists()


def test_without_onnx_runtime_push_says_what_it_did_not_do(folder: Path) -> None:
    (folder / "site").mkdir()
    (folder / "site" / "onnxruntime.py").write_text("raise ImportError('not installed')\n")
    command = [str(Path(sysconfig.get_path("scripts")) / "model-registry"), "push", "v1", f"{REPO}:1.0.0"]
    environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    assert "the golden examples were not run" in done.stderr


def test_list(pushed: list[str]) -> None:
    run("promote", REPO, "--to", "2.0.0")
    listed = answer("list", REPO)
    assert [(v["version"], v["digest"], v["channels"]) for v in listed["versions"]] == [
        ("1.0.0", pushed[0], []),
        ("2.0.0", pushed[1], ["prod"]),
    ]
    assert "2.0.0" in run("list", REPO).stdout


def test_inspect(pushed: list[str]) -> None:
    run("promote", REPO, "--to", "1.0.0")
    found = answer("inspect", f"{REPO}:prod")
    assert (found["name"], found["version"], found["digest"], found["revision"]) == ("flight-delay", "1.0.0", pushed[0], 1)
    assert [file["path"] for file in found["files"]] == ["README.md", "golden.jsonl", "model.onnx", "signature.json"]
    assert found["signature"]["output"] == {"tensor": "p", "index": 1}
    assert answer("inspect", f"{REPO}@{pushed[0]}")["version"] == "1.0.0"
    text = run("inspect", f"{REPO}:prod").stdout
    assert pushed[0] in text
    assert "a: float32" in text


def test_pull(pushed: list[str], folder: Path) -> None:
    assert answer("pull", f"{REPO}:2.0.0", "out")["digest"] == pushed[1]
    assert (folder / "out" / "model.onnx").read_bytes() == onnx_bytes(b"two")
    run("pull", f"{REPO}@{pushed[0]}", "other")
    assert (folder / "other" / "model.onnx").read_bytes() == onnx_bytes(b"one")


def test_promote_says_from_to_and_revision(pushed: list[str]) -> None:
    assert run("promote", REPO, "--to", "1.0.0").stdout == "prod: nothing -> 1.0.0 (revision 1)\n"
    moved = answer("promote", REPO, "--to", "2.0.0", "--reason", "better AUC")
    assert (moved["from"], moved["to"], moved["revision"]) == (*pushed, 2)
    assert (moved["from_version"], moved["to_version"], moved["reason"]) == ("1.0.0", "2.0.0", "better AUC")
    assert run("promote", REPO, "--to", "1.0.0").stdout == "prod: 2.0.0 -> 1.0.0 (revision 3)\n"
    assert run("promote", REPO, "--to", "1.0.0", "--channel", "canary").stdout == "canary: nothing -> 1.0.0 (revision 1)\n"


@pytest.mark.usefixtures("pushed")
def test_history() -> None:
    run("promote", REPO, "--to", "1.0.0")
    run("promote", REPO, "--to", "2.0.0", "--reason", "better\x1b[2J AUC")
    moves = answer("history", REPO)["moves"]
    assert [(move["revision"], move["to_version"]) for move in moves] == [(1, "1.0.0"), (2, "2.0.0")]
    assert moves[0]["actor"].startswith("zoe@")
    text = run("history", REPO).stdout
    assert "better" in text
    assert "\x1b" not in text


def test_inspect_diff(pushed: list[str], make_package: MakePackage) -> None:
    signature = '{"inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a", "c"]}], "output": {"tensor": "p"}}'
    make_package("v3", model=onnx_bytes(b"one"), signature=signature, golden="")
    run("push", "v3", f"{REPO}:3.0.0")
    found = answer("inspect", f"{REPO}:2.0.0", "--diff", "1.0.0")
    assert (found["from"]["digest"], found["to"]["digest"]) == (pushed[0], pushed[1])
    assert (found["changed"], found["added"], found["removed"], found["compatible"]) == (["model.onnx"], [], [], True)
    found = answer("inspect", "--diff", f"{REPO}:1.0.0", f"{REPO}:3.0.0")
    assert found["breaks"] == ["field c is required and was not read"]
    text = run("inspect", f"{REPO}:3.0.0", "--diff", "1.0.0").stdout
    assert "not compatible: field c" in text
    assert "~ signature.json" in text


@pytest.mark.usefixtures("pushed")
def test_roles_rollback_and_status() -> None:
    run("promote", REPO, "--to", "1.0.0", "--reason", "first")
    moved = answer("promote", REPO, "--to", "1.0.0", "--canary", "2.0.0=10")
    assert [(r["role"], r["version"], r["weight"]) for r in moved["roles"]] == [
        ("champion", "1.0.0", 90),
        ("canary", "2.0.0", 10),
    ]
    assert answer("list", REPO)["versions"][1]["channels"] == ["prod (canary)"]
    assert answer("inspect", f"{REPO}:prod")["version"] == "1.0.0"
    status = answer("status", REPO)["channels"]
    assert [(c["channel"], c["revision"], c["serves"]) for c in status] == [
        ("prod", 2, "champion 1.0.0 90 %, canary 2.0.0 10 %")
    ]
    assert status[0]["by"].startswith("zoe@")
    assert "canary 2.0.0" in run("history", REPO).stdout
    assert run("rollback", REPO).stdout == "prod: 1.0.0 -> 1.0.0 (revision 3, back to revision 1)\n"
    assert answer("rollback", REPO, "--to-revision", "2")["roles"] == moved["roles"]
    assert "prod" in run("status", REPO).stdout


@pytest.mark.usefixtures("pushed")
def test_watch_prints_moves_until_enough_have_come() -> None:
    run("promote", REPO, "--to", "1.0.0")
    run("promote", REPO, "--to", "2.0.0", "--reason", "better")
    result = run("watch", REPO, "--json", "--since", "0", "--count", "2")
    assert [json.loads(line)["to_version"] for line in result.stdout.splitlines()] == ["1.0.0", "2.0.0"]
    assert "prod: 1.0.0 -> 2.0.0 (revision 2) by zoe@" in run("watch", REPO, "--since", "1", "--count", "1").stdout


@pytest.mark.usefixtures("pushed")
def test_prune() -> None:
    for version in ("1.0.0", "2.0.0"):
        run("promote", REPO, "--to", version)
    planned = answer("prune", REPO, "--keep-revisions", "1", "--dry-run")
    assert ([v["version"] for v in planned["versions"]], planned["freed"]) == (["1.0.0"], 0)
    assert "would be deleted: 1 versions, 1 history entries" in run("prune", REPO, "--keep-revisions", "1", "--dry-run").stdout
    done = answer("prune", REPO, "--keep-revisions", "1", "--grace-minutes", "0")
    assert done["freed"] > 0
    assert [v["version"] for v in answer("list", REPO)["versions"]] == ["2.0.0"]
    assert run("prune", REPO).stdout == "deleted: 0 versions, 0 history entries; 0 bytes freed\n"


@pytest.mark.usefixtures("pushed")
@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["push", "v2", f"{REPO}:1.0.0"], 3, "version 1.0.0 of "),
        (["push", "v1", f"{REPO}:prod"], 3, "'prod' is a channel"),
        (["push", "absent", f"{REPO}:3.0.0"], 3, "absent has no model.onnx"),
        (["push", "v1", REPO], 2, "which version?"),
        (["push", "v1", "flight-delay:1.0.0"], 2, "neither oci:FOLDER nor HOST/PATH"),
        (["inspect", REPO], 2, "which version?"),
        (["inspect", f"{REPO}:9"], 3, "has no tag '9'"),
        (["pull", f"{REPO}:1.0.0", "v2"], 3, "v2 is not empty"),
        (["list", "oci:elsewhere"], 4, "no OCI layout at "),
        (["history", REPO], 3, "has no channel 'prod'"),
        (["promote", REPO, "--to", "9"], 3, "has no version '9'"),
        (["promote", REPO, "--to", "1.0.0", "--channel", "2.0.0"], 3, "'2.0.0' is a version"),
        (["promote", REPO, "--to", "1.0.0", "--channel", "a b"], 2, "'a b' is no channel"),
        (["promote", REPO, "--to", "1.0.0", "--canary", "2.0.0"], 2, "--canary 2.0.0"),
        (["promote", REPO, "--to", "1.0.0", "--wait"], 2, "--wait without a broker"),
        (["promote", REPO, "--to", "1.0.0", "--kafka-config", "absent"], 2, "cannot read absent"),
        (["promote", REPO, "--to", "1.0.0", "--kafka-config", "v1/golden.jsonl"], 2, "v1/golden.jsonl:1 has no '='"),
        (["promote", REPO, "--to", "1.0.0", "--kafka-config", "v1/README.md"], 2, "no Kafka broker is named"),
        (["promote", REPO, "--to", "1.0.0", "--expect-digest", "1.0.0"], 2, "'1.0.0' is no digest"),
        (["promote", REPO, "--to", "1.0.0", "--expect-revision", "3"], 3, "is at revision 0, not 3 as expected"),
        (["rollback", REPO], 3, "has no history"),
    ],
)
def test_an_error_is_one_line_and_a_hint(arguments: list[str], code: int, error: str) -> None:
    result = run(*arguments, code=code)
    assert result.stdout == ""
    first, second = result.stderr.splitlines()
    assert first.startswith("error: ")
    assert error in first
    assert second.startswith("hint: ")


def test_usage_errors_end_with_2() -> None:
    run("promote", REPO, code=2)
    run("polish", code=2)


@pytest.mark.usefixtures("pushed")
def test_watch_ends_quietly_with_ctrl_c(folder: Path) -> None:
    command = str(Path(sysconfig.get_path("scripts")) / "model-registry")
    with subprocess.Popen([command, "watch", REPO], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"watching 'prod' of ")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == b""


def test_the_installed_command(folder: Path) -> None:
    command = str(Path(sysconfig.get_path("scripts")) / "model-registry")
    done = subprocess.run(
        [command, "push", "v1", f"{REPO}:1.0.0", "--json"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["version"] == "1.0.0"
    assert done.stderr == ""
    assert sorted(path.name for path in folder.iterdir()) == ["registry", "v1", "v2"]
    failed = subprocess.run([command, "list", "oci:absent"], cwd=folder, capture_output=True, text=True, check=False)
    assert failed.returncode == 4
    assert failed.stdout == ""
    assert failed.stderr.startswith("error: no OCI layout at ")
