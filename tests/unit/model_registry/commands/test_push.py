"""`model-registry push`: its stored content, derived signatures and refusals."""

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from model_registry.oci import manifest
from model_registry.package.placeholders import BLANK
from model_registry.stores.oci_layout import LayoutStore
from tests.support import models
from tests.unit.model_registry.conftest import REPO, SIGNATURE, answer, onnx_bytes, run

pytestmark = pytest.mark.usefixtures("folder")


def test_push_prints_the_stored_version(folder: Path) -> None:
    result = run("push", "v1", f"{REPO}:1.0.0")
    name, _, digest = result.stdout.strip().partition("@")
    assert name == "flight-delay:1.0.0"
    assert result.stderr == "the model gives the scores of its golden examples (1)\n"
    assert LayoutStore(folder / "registry" / "flight-delay").resolve("1.0.0").digest == digest
    pushed = answer("push", "v1", f"{REPO}:1.0.0")
    assert (pushed["name"], pushed["version"], pushed["digest"]) == ("flight-delay", "1.0.0", digest)
    assert pushed["golden_examples"] == 1
    assert pushed["ran_with_onnxruntime"]
    assert pushed["signature_derived"] is False


def test_push_records_source_date_epoch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1378015200")
    run("push", "v1", f"{REPO}:1.0.0")
    created = answer("inspect", f"{REPO}:1.0.0")["created"]
    assert created == "2013-09-01T06:00:00+00:00"
    store = LayoutStore(folder / "registry" / "flight-delay")
    version = manifest.parse_version(store.manifest(store.resolve("1.0.0").digest))
    assert json.loads(b"".join(store.blob(version.config)))["created"] == created
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    assert "SOURCE_DATE_EPOCH is 'yesterday'" in run("push", "v2", f"{REPO}:2.0.0", code=2).stderr


def test_push_records_given_annotations_and_the_needs_of_the_version(folder: Path) -> None:
    options = ["--source", "https://git.example.com/x", "--revision", "4711abc", "--licenses", "Apache-2.0"]
    run("push", "v1", f"{REPO}:1.0.0", *options, "--annotation", "org.example.auc=0.91", "--device", "cuda", "--device", "cpu")
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


def test_push_creates_an_image_with_and_without_a_base() -> None:
    first = answer("push", "v1", f"{REPO}:1.0.0", "--image", "scratch")["digest"]
    second = answer("push", "v2", f"{REPO}:2.0.0", "--image", f"{REPO}:1.0.0")["digest"]
    assert first != second
    run("pull", f"{REPO}:2.0.0", "out")
    assert Path("out/model.onnx").read_bytes() == onnx_bytes(b"two")
    assert [(v["version"], v["digest"]) for v in answer("list", REPO)["versions"]] == [("1.0.0", first), ("2.0.0", second)]
    difference = answer("inspect", f"{REPO}:2.0.0", "--diff", "1.0.0")
    assert (difference["added"], difference["compatible"], difference["breaks"]) == (["layer 2"], None, [])
    text = run("inspect", f"{REPO}:2.0.0", "--diff", "1.0.0").stdout
    assert "it is unknown whether events stay valid: the manifest of a container image does not contain its signature" in text
    assert "not compatible" not in text
    assert "names no version" in run("push", "v1", f"{REPO}:3.0.0", "--image", REPO, code=2).stderr
    run("push", "v1", f"{REPO}:3.0.0")
    assert "is not a container image" in run("push", "v1", f"{REPO}:4.0.0", "--image", f"{REPO}:3.0.0", code=3).stderr


def test_push_derives_a_signature_if_the_model_leaves_no_choice(folder: Path) -> None:
    (folder / "v1" / "signature.json").unlink()
    (folder / "v1" / "golden.jsonl").write_text('{"event": {"x": [1.5, 0]}, "score": [0.25, 0.25], "tolerance": 1e-4}\n')
    result = run("push", "v1", f"{REPO}:1.0.0", "--json")
    assert json.loads(result.stdout)["signature_derived"] is True
    assert "the version gets the signature" in result.stderr
    assert answer("inspect", f"{REPO}:1.0.0")["signature"]["output"] == {"tensor": "p"}
    assert not (folder / "v1" / "signature.json").exists()


def test_push_prints_a_skeleton_if_the_model_leaves_a_choice(folder: Path) -> None:
    (folder / "v1" / "signature.json").unlink()
    models.classifier(folder / "v1" / "model.onnx")
    result = run("push", "v1", f"{REPO}:1.0.0", code=3)
    assert json.loads(result.stdout)["output"] == {"tensor": "probabilities", "index": "FILL IN"}
    assert "which output is the score" in result.stderr
    assert not (folder / "registry").exists()
    (folder / "v1" / "signature.json").write_text(result.stdout.replace('"FILL IN"', "1"))
    (folder / "v1" / "golden.jsonl").unlink()
    run("push", "v1", f"{REPO}:1.0.0")


def test_push_refuses_a_version_that_no_scorer_would_serve(folder: Path) -> None:
    (folder / "v1" / "golden.jsonl").write_text('{"event": {"a": 1.5}, "score": 0.9, "tolerance": 1e-4}\n')
    assert "golden example 1 must score 0.9" in run("push", "v1", f"{REPO}:1.0.0", code=3).stderr
    (folder / "v1" / "signature.json").write_text(SIGNATURE.replace(', "index": 1', ""))
    assert "which column is the score" in run("push", "v1", f"{REPO}:1.0.0", code=3).stderr
    (folder / "v1" / "model.onnx").write_bytes(b"weights")
    assert "is not a valid ONNX file" in run("push", "v1", f"{REPO}:1.0.0", code=3).stderr
    assert not (folder / "registry").exists()


def test_without_onnx_runtime_push_reports_the_omitted_checks(folder: Path) -> None:
    (folder / "site").mkdir()
    (folder / "site" / "onnxruntime.py").write_text("raise ImportError('not installed')\n")
    command = [str(Path(sysconfig.get_path("scripts")) / "model-registry"), "push", "v1", f"{REPO}:1.0.0"]
    environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
    completed = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    assert "the golden examples were not run" in completed.stderr


def test_only_the_files_of_a_package_are_pushed_and_others_are_named(folder: Path) -> None:
    (folder / "v1" / "train.log").write_text("epoch 1\n")
    (folder / "v1" / "LICENSE").write_text("Apache-2.0\n")
    nested = folder / "v1" / "registry" / "flight-delay"
    nested.mkdir(parents=True)
    (nested / "index.json").write_text("{}")
    result = run("push", "v1", f"{REPO}:1.0.0")
    assert "left out, because they do not belong to a package: registry/, train.log\n" in result.stderr
    store = LayoutStore(folder / "registry" / "flight-delay")
    version = manifest.parse_version(store.manifest(store.resolve("1.0.0").digest))
    assert sorted(file.path for file in version.files) == [
        "LICENSE",
        "README.md",
        "golden.jsonl",
        "model.onnx",
        "signature.json",
    ]
    assert json.loads(run("push", "v1", f"{REPO}:1.0.0", "--json").stdout)["left_out"] == ["registry/", "train.log"]


def test_a_push_without_golden_examples_does_not_report_their_scores(folder: Path) -> None:
    (folder / "v1" / "golden.jsonl").unlink()
    stderr = run("push", "v1", f"{REPO}:3.0.0").stderr
    assert "no golden.jsonl: no score of this version is checked" in stderr
    assert "scores of its golden examples" not in stderr


def test_a_model_that_no_scorer_could_serve_is_rejected_without_golden_examples_too(folder: Path) -> None:
    (folder / "v1" / "golden.jsonl").unlink()
    rule = ', "decision": {"threshold": 0.5, "at_or_above": "late", "below": "in time"}}'
    (folder / "v1" / "signature.json").write_text(SIGNATURE.replace(', "index": 1}}', "}" + rule))
    stderr = run("push", "v1", f"{REPO}:3.0.0", code=3).stderr
    assert "the signature has a decision, but the score is not a single number: output 'p' has shape (1, 2)" in stderr


def test_a_model_without_a_tensor_as_output_gets_no_skeleton_to_complete(folder: Path) -> None:
    package_folder = folder / "bare"
    package_folder.mkdir()
    tensors = helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, None)
    nodes = [helper.make_node("SplitToSequence", ["x"], ["parts"], axis=1)]
    models.save(nodes, [models.tensor("x", TensorProto.FLOAT, "N", 3)], [tensors], package_folder / "model.onnx")
    result = run("push", "bare", f"{REPO}:3.0.0", code=3)
    assert "no output of the model is a tensor: output 'parts' is a sequence" in result.stderr
    assert result.stdout == ""


def test_the_only_input_of_a_model_of_batch_one_is_no_constant_in_the_skeleton(folder: Path) -> None:
    package_folder = folder / "bare"
    package_folder.mkdir()
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    x, y = (models.tensor(name, TensorProto.FLOAT, 1, 4) for name in ("x", "y"))
    models.save(nodes, [x], [y], package_folder / "model.onnx")
    skeleton = json.loads(run("push", "bare", f"{REPO}:3.0.0", code=3).stdout)
    fields = [{"name": "x", "array": True}]
    assert skeleton["inputs"] == [{"tensor": "x", "dtype": "float32", "shape": [1, 4], "fields": fields, "batch": False}]


def test_accept_shows_the_scores_of_the_model_and_writes_the_different_ones(folder: Path) -> None:
    lines = [
        {"event": {"a": 1.5}, "score": 0.25001, "tolerance": 1e-3},
        {"event": {"a": 3.0, "b": 1.0}, "score": 0.9, "tolerance": 1e-3},
        {"event": {"a": 6000.0}, "score": BLANK, "tolerance": 1e-4},
    ]
    golden = folder / "v1" / "golden.jsonl"
    golden.write_text("".join(json.dumps(line) + "\n" for line in lines))
    refused = run("push", "v1", f"{REPO}:1.0.0", code=3).stderr
    assert "push with --accept" in refused
    assert json.loads(golden.read_text().splitlines()[1])["score"] == 0.9
    result = run("push", "v1", f"{REPO}:1.0.0", "--accept", "--json")
    assert json.loads(result.stdout)["accepted"] == 2
    table = [line.split() for line in result.stderr.splitlines() if line[:1].isdigit()]
    assert [(row[0], row[-1] == "yes") for row in table] == [("1", False), ("2", True), ("3", True)]
    assert [json.loads(line) for line in golden.read_text().splitlines()] == [
        lines[0],
        {**lines[1], "score": 0.5},
        {**lines[2], "score": 1000.0, "tolerance": 0.1},
    ]
    run("pull", f"{REPO}:1.0.0", "out")
    assert (folder / "out" / "golden.jsonl").read_bytes() == golden.read_bytes()


def test_a_score_that_differs_is_an_error_that_names_accept(folder: Path) -> None:
    (folder / "v1" / "golden.jsonl").write_text('{"event": {"a": 1.5}, "score": 0.9, "tolerance": 1e-4}\n')
    assert "`model-registry push --accept` writes it" in run("push", "v1", f"{REPO}:1.0.0", code=3).stderr


def test_accept_writes_the_scores_of_examples_with_joined_values(folder: Path) -> None:
    joined = {"name": "customers.b", "from": "table:customers", "default": 0}
    inputs = [{"tensor": "x", "dtype": "float32", "fields": ["a", joined]}]
    (folder / "v1" / "signature.json").write_text(json.dumps({"inputs": inputs, "output": {"tensor": "p", "index": 1}}))
    example = {"event": {"a": 3.0, "customers.b": 7}, "score": BLANK, "tolerance": 1e-4}
    (folder / "v1" / "golden.jsonl").write_text(json.dumps(example) + "\n")
    assert json.loads(run("push", "v1", f"{REPO}:1.0.0", "--accept", "--json").stdout)["accepted"] == 1
    assert json.loads((folder / "v1" / "golden.jsonl").read_text()) == {**example, "score": 0.5}


def test_accept_is_refused_without_a_score_to_accept(folder: Path) -> None:
    golden = folder / "v1" / "golden.jsonl"
    golden.write_text(
        '{"event": {"a": 3.4e38}, "score": "FILL IN", "tolerance": 1e-4}\n{"event": {"a": 1.5}, "score": 1, "tolerance": 0}\n'
    )
    (folder / "v1" / "model.onnx").write_bytes(squares())
    before = golden.read_bytes()
    refused = run("push", "v1", f"{REPO}:1.0.0", "--accept", code=3).stderr
    assert "golden example 1: the model gives the score inf, which is not finite" in refused
    assert golden.read_bytes() == before
    golden.unlink()
    assert "golden.jsonl whose scores could be accepted" in run("push", "v1", f"{REPO}:1.0.0", "--accept", code=3).stderr
    assert not (folder / "registry").exists()


def squares() -> bytes:
    """Return a model p = x * x, of shape (B, 2), that fits SIGNATURE."""
    io = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2]) for name in ("x", "p")]
    nodes = [helper.make_node("Gather", ["x", "first"], ["a"], axis=1), helper.make_node("Mul", ["a", "a"], ["p"])]
    graph = helper.make_graph(nodes, "test", io[:1], io[1:], [numpy_helper.from_array(np.array([0, 0], np.int64), "first")])
    data: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return data
