"""The model-registry command: its output and exit codes."""

import json
import shutil
import signal
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from model_registry.stores.oci_layout import LayoutStore
from tests.support import models
from tests.unit.model_registry import roles_index
from tests.unit.model_registry.conftest import REPO, MakePackage, answer, fields_of, onnx_bytes, run, write_package

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Push two versions once for all tests of this file, because each push runs the model in a separate process.

    Returns:
        The folder of the registry, and the digests of the versions.
    """
    folder = tmp_path_factory.mktemp("pushed")
    digests = []
    for version, label in (("1.0.0", b"one"), ("2.0.0", b"two")):
        package = write_package(folder, version, model=onnx_bytes(label))
        digests.append(answer("push", str(package), f"oci:{folder}/registry/flight-delay:{version}")["digest"])
    return folder / "registry", digests


@pytest.fixture
def pushed(folder: Path, two_versions: tuple[Path, list[str]]) -> list[str]:
    """Return the digests of two versions in this test's own copy of the registry."""
    registry, digests = two_versions
    shutil.copytree(registry, folder / "registry")
    return digests


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
    document = answer("inspect", f"{REPO}:prod")
    assert (document["name"], document["version"], document["digest"], document["revision"]) == (
        "flight-delay",
        "1.0.0",
        pushed[0],
        1,
    )
    assert [file["path"] for file in document["files"]] == ["README.md", "golden.jsonl", "model.onnx", "signature.json"]
    assert document["signature"]["output"] == {"tensor": "p", "index": 1}
    assert answer("inspect", f"{REPO}@{pushed[0]}")["version"] == "1.0.0"
    text = run("inspect", f"{REPO}:prod").stdout
    assert pushed[0] in text
    assert fields_of(text) == {"a": ["float32", "event", "required"], "b": ["float32", "event", "default 'nan'"]}
    assert "output    score: a number, column 1 of p\n" in text


def test_inspect_lists_every_property_of_the_fields_of_a_version_and_of_a_folder(
    folder: Path, make_package: MakePackage
) -> None:
    sources = [{"name": "a", "from": "header:a"}, {"name": "customers.b", "from": "table:customers", "default": 2}]
    inputs = [{"tensor": "x", "dtype": "float32", "fields": sources}]
    signature = json.dumps({"inputs": inputs, "output": {"tensor": "p", "index": 0}})
    make_package("v4", model=onnx_bytes(b"one"), signature=signature, golden="")
    run("push", "v4", f"{REPO}:4.0.0")
    common = {"tensor": "x", "dtype": "float32", "type": "float32"}
    expected = [
        {"name": "a", **common, "from": "header:a", "path": None, "required": True, "default": None},
        {"name": "customers.b", **common, "from": "table:customers", "path": "b", "required": False, "default": 2.0},
    ]
    for document in (answer("inspect", f"{REPO}:4.0.0"), answer("inspect", "v4")):
        assert document["fields"] == expected
        assert [(output["name"], output["tensor"], output["index"]) for output in document["outputs"]] == [("score", "p", 0)]
    assert fields_of(run("inspect", "v4").stdout) == {
        "a": ["float32", "header:a", "required"],
        "customers.b": ["float32", "table:customers", "default 2.0"],
    }
    assert "is a folder, and --diff and --key need a pushed version" in run("inspect", "v4", "--diff", "1.0.0", code=2).stderr
    (folder / "v4" / "README.md").write_text("FILL IN: what it is\n")
    assert "README.md line 1" in run("inspect", "v4", code=3).stderr


OUTPUTS = {
    '"output": {"tensor": "p"}, "labels": ["late", "on time"]': [
        "output    score: the whole row of p",
        "labels    late, on time",
    ],
    '"output": {"tensor": "p", "index": 1}, "decision": {"threshold": 0.5, "at_or_above": "late", "below": "on time"}': [
        "output    score: a number, column 1 of p",
        "decision  late (score 0.5 or more), else on time",
    ],
    '"output": [{"name": "risk", "tensor": "p", "index": 0}, {"name": "all", "tensor": "p"}]': [
        "output    risk: a number, column 0 of p",
        "output    all: the whole row of p",
    ],
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_inspect_shows_the_output_labels_and_decision(output: str, make_package: MakePackage) -> None:
    inputs = '"inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a", "b"]}]'
    make_package("v4", model=onnx_bytes(b"one"), signature=f"{{{inputs}, {output}}}", golden="")
    assert "no golden.jsonl" in run("push", "v4", f"{REPO}:4.0.0").stderr
    lines = run("inspect", f"{REPO}:4.0.0").stdout.splitlines()
    assert [line for line in lines if line.startswith(("output", "labels", "decision"))] == OUTPUTS[output]


def test_pull(pushed: list[str], folder: Path) -> None:
    assert answer("pull", f"{REPO}:2.0.0", "out")["digest"] == pushed[1]
    assert (folder / "out" / "model.onnx").read_bytes() == onnx_bytes(b"two")
    run("pull", f"{REPO}@{pushed[0]}", "other")
    assert (folder / "other" / "model.onnx").read_bytes() == onnx_bytes(b"one")


def test_promote_prints_from_to_and_revision(pushed: list[str]) -> None:
    assert run("promote", REPO, "--to", "1.0.0").stdout == "prod: nothing -> 1.0.0 (revision 1)\n"
    moved = answer("promote", REPO, "--to", "2.0.0", "--reason", "better AUC")
    assert (moved["from"], moved["to"], moved["revision"]) == (*pushed, 2)
    assert (moved["from_version"], moved["to_version"], moved["reason"]) == ("1.0.0", "2.0.0", "better AUC")
    assert run("promote", REPO, "--to", "1.0.0").stdout == "prod: 2.0.0 -> 1.0.0 (revision 3)\n"
    assert run("promote", REPO, "--to", "1.0.0", "--channel", "canary").stdout == "canary: nothing -> 1.0.0 (revision 1)\n"


def shaped(path: Path, rows: int, columns: int) -> bytes:
    """Write a model with the inputs x (B, rows, columns) and rate, of shape []."""
    x, rate = models.tensor("x", TensorProto.FLOAT, "N", rows, columns), models.tensor("rate", TensorProto.INT64)
    node = helper.make_node("Identity", ["x"], ["p"])
    models.save([node], [x, rate], [models.tensor("p", TensorProto.FLOAT, "N", rows, columns)], path)
    return path.read_bytes()


def test_shapes_and_constants_are_shown(folder: Path, make_package: MakePackage) -> None:
    for version, shape, rate in (("5.0.0", (2, 4), 16000), ("6.0.0", (4, 2), 8000)):
        image = {"tensor": "x", "dtype": "float32", "shape": shape, "fields": [{"name": "image", "array": True}]}
        constant = {"tensor": "rate", "dtype": "int64", "value": rate, "batch": False}
        signature = json.dumps({"inputs": [image, constant], "output": {"tensor": "p"}})
        golden = json.dumps({"event": {"image": np.ones(shape).tolist()}, "score": np.ones(shape).tolist(), "tolerance": 0})
        make_package(version, model=shaped(folder / "m.onnx", *shape), signature=signature, golden=golden + "\n")
        run("push", version, f"{REPO}:{version}")
    output = run("inspect", f"{REPO}:5.0.0").stdout
    assert fields_of(output)["image"] == ["float32[2, 4]", "event", "required"]
    assert "rate: int64 (), always 16000" in output
    document = answer("inspect", f"{REPO}:6.0.0", "--diff", "5.0.0")
    assert document["breaks"] == ["field image was float32[2, 4] and is float32[4, 2]"]
    assert "tensor x: float32 (B, 2, 4) -> float32 (B, 4, 2)" in document["signature"]
    assert "tensor rate: int64 (), always 16000 -> int64 (), always 8000" in document["signature"]


def test_differences_for_readers_of_scores_are_listed(make_package: MakePackage) -> None:
    inputs = [{"tensor": "x", "dtype": "float32", "fields": ["a", "b"]}]
    before = {"output": {"tensor": "p", "top": 1}, "labels": ["a", "b"]}
    after = {"output": {"tensor": "p", "shape": [2]}, "labels": ["a", "c"], "decision": None}
    several = {"output": [{"name": "q", "tensor": "p", "top": 2}], "labels": [f"class {n}" for n in range(2)]}
    several["decision"] = {"argmax": True, "output": "q"}
    for version, parts in (("5.0.0", before), ("6.0.0", after), ("7.0.0", several)):
        make_package(version, model=onnx_bytes(), signature=json.dumps({"inputs": inputs, **parts}), golden="")
        run("push", version, f"{REPO}:{version}")
    document = answer("inspect", f"{REPO}:6.0.0", "--diff", "5.0.0")
    assert document["compatible"]
    assert document["signature"] == ["output score: the 1 largest of p, of a, b -> (B, 2) of p", "labels: a, b -> a, c"]
    document = answer("inspect", f"{REPO}:7.0.0", "--diff", "6.0.0")
    assert document["signature"] == [
        "output score is no longer given",
        "output q is new: the 2 largest of p, of class 0, class 1",
        "labels: a, c -> class 0, class 1",
        "decision: none -> the label of the largest of q",
    ]


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


def test_history_marks_a_move_that_the_channel_did_not_follow(folder: Path, pushed: list[str]) -> None:
    """Such a move remains after a process that ended between entry and tag, or in a registry that prevents moves of tags."""
    for version in ("1.0.0", "2.0.0"):
        run("promote", REPO, "--to", version)
    store = LayoutStore(folder / REPO.removeprefix("oci:"))
    store.move_tags({"prod": store.resolve("1.0.0")}, expect={"prod": pushed[1]})
    assert [(move["revision"], move["made"]) for move in answer("history", REPO)["moves"]] == [(1, True), (2, False)]
    assert run("history", REPO).stdout.count("not completed") == 1


def test_inspect_diff(pushed: list[str], make_package: MakePackage) -> None:
    signature = '{"inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a", "c"]}], "output": {"tensor": "p"}}'
    make_package("v3", model=onnx_bytes(b"one"), signature=signature, golden="")
    run("push", "v3", f"{REPO}:3.0.0")
    document = answer("inspect", f"{REPO}:2.0.0", "--diff", "1.0.0")
    assert (document["from"]["digest"], document["to"]["digest"]) == (pushed[0], pushed[1])
    assert (document["changed"], document["added"], document["removed"], document["compatible"]) == (
        ["model.onnx"],
        [],
        [],
        True,
    )
    document = answer("inspect", "--diff", f"{REPO}:1.0.0", f"{REPO}:3.0.0")
    assert document["breaks"] == ["field c is required and was not read"]
    text = run("inspect", f"{REPO}:3.0.0", "--diff", "1.0.0").stdout
    assert "not compatible: field c" in text
    assert "~ signature.json" in text


@pytest.mark.usefixtures("pushed")
def test_inspect_shows_paths_and_the_breaks_of_a_moved_field(make_package: MakePackage) -> None:
    signature = """{"inputs": [{"tensor": "x", "dtype": "float32", "fields":
     [{"name": "a", "path": "after.a"}, {"name": "c", "path": "b.c", "default": 0}]}], "output": {"tensor": "p"}}"""
    make_package("v3", model=onnx_bytes(b"one"), signature=signature, golden="")
    run("push", "v3", f"{REPO}:3.0.0")
    assert fields_of(run("inspect", f"{REPO}:3.0.0").stdout)["a"][1] == "event: after.a"
    assert answer("inspect", f"{REPO}:3.0.0")["signature"]["inputs"][0]["fields"][0]["path"] == "after.a"
    document = answer("inspect", f"{REPO}:3.0.0", "--diff", "1.0.0")
    assert document["breaks"] == [
        "field a was read at a and is read at after.a",
        "field c is read at b.c, in conflict with field 'b' at b",
    ]
    assert "field a: float32, required -> float32, required, at after.a" in document["signature"]
    assert answer("inspect", f"{REPO}:3.0.0", "--diff", "3.0.0")["breaks"] == []


@pytest.mark.usefixtures("pushed")
def test_roles_rollback_and_status() -> None:
    run("promote", REPO, "--to", "1.0.0", "--reason", "first")
    roles_index.promote(LayoutStore(Path("registry/flight-delay")), ("champion", "1.0.0", 90), ("canary", "2.0.0", 10))
    assert answer("list", REPO)["versions"][1]["channels"] == ["prod (canary)"]
    assert answer("inspect", f"{REPO}:prod")["version"] == "1.0.0"
    status = answer("status", REPO)["channels"]
    assert [(c["channel"], c["revision"], c["serves"]) for c in status] == [
        ("prod", 2, "champion 1.0.0 90 %, canary 2.0.0 10 %")
    ]
    assert status[0]["by"] == "op@host"
    assert "canary 2.0.0" in run("history", REPO).stdout
    run("promote", REPO, "--to", "2.0.0")
    assert run("rollback", REPO).stdout == "prod: 2.0.0 -> 1.0.0 (revision 4, back to revision 2)\n"
    assert answer("rollback", REPO, "--to-revision", "2")["roles"] == []
    assert "prod" in run("status", REPO).stdout


@pytest.mark.usefixtures("pushed")
def test_watch_prints_the_requested_number_of_moves() -> None:
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
    refused = run("prune", REPO, "--keep-revisions", "1", code=2)
    assert "no terminal to confirm it on" in refused.stderr
    assert "--yes" in refused.stderr
    assert len(answer("list", REPO)["versions"]) == 2
    deleted = answer("prune", REPO, "--keep-revisions", "1", "--grace-minutes", "0", "--yes")
    assert deleted["freed"] > 0
    assert [v["version"] for v in answer("list", REPO)["versions"]] == ["2.0.0"]
    assert run("prune", REPO).stdout == "deleted: 0 versions, 0 history entries; 0 bytes freed\n"


@pytest.mark.usefixtures("pushed")
@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["push", "v2", f"{REPO}:1.0.0"], 3, "version 1.0.0 of "),
        (["push", "v1", f"{REPO}:prod"], 3, "'prod' is a channel"),
        (["push", "absent", f"{REPO}:3.0.0"], 3, "there is no folder absent"),
        (["push", "v1", REPO], 2, "names no version"),
        (["push", "v1", "flight-delay:1.0.0"], 2, "neither oci:FOLDER nor HOST/PATH"),
        (["inspect", REPO], 2, "names no version"),
        (["inspect", f"{REPO}:9"], 3, "has no tag '9'"),
        (["pull", f"{REPO}:1.0.0", "v2"], 3, "v2 is not empty"),
        (["list", "oci:elsewhere"], 4, "no OCI layout at "),
        (["history", REPO], 3, "has no channel 'prod'"),
        (["promote", REPO, "--to", "9"], 3, "has no version '9'"),
        (["promote", REPO, "--to", "1.0.0", "--channel", "2.0.0"], 3, "'2.0.0' is the tag of a version"),
        (["promote", REPO, "--to", "1.0.0", "--channel", "a b"], 2, "'a b' is not a valid name of a channel"),
        (["promote", REPO, "--to", "1.0.0", "--canary", "100%"], 2, "'100%' is not a valid share of a canary"),
        (["promote", REPO, "--to", "1.0.0", "--canary", "5%"], 3, "has no champion, so 1.0.0 cannot be its canary"),
        (["promote", REPO, "--to", "1.0.0", "--shadow", "1.0.0"], 3, "version 1.0.0 cannot shadow itself"),
        (["promote", REPO, "--to", "1.0.0", "--shadow", "9"], 3, "has no version '9'"),
        (["promote", REPO, "--to", "1.0.0", "--canary", "5%", "--shadow", "2.0.0"], 2, "--canary and --shadow name two"),
        (["promote", REPO, "--to", "1.0.0", "--expect-digest", "1.0.0"], 2, "'1.0.0' is not a valid digest"),
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


@pytest.mark.usefixtures("pushed")
def test_watch_ends_quietly_with_ctrl_c(folder: Path) -> None:
    command = str(Path(sysconfig.get_path("scripts")) / "model-registry")
    with subprocess.Popen([command, "watch", REPO], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"watching 'prod' of ")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == b""


def test_the_installed_command_ends_with_the_code_of_an_error(folder: Path) -> None:
    command = str(Path(sysconfig.get_path("scripts")) / "model-registry")
    failed = subprocess.run([command, "list", "oci:absent"], cwd=folder, capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout) == (4, "")
    assert failed.stderr.startswith("error: no OCI layout at ")
    assert sorted(path.name for path in folder.iterdir()) == ["v1", "v2"]
