"""`model-registry init`: the draft from a model and example events, its gaps, and the steps to a version."""

import base64
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from model_registry.errors import Refused
from model_registry.package import binary_fields, placeholders
from model_registry.package.placeholders import BLANK
from model_registry.package.signature_schema import parse_signature
from tests.support import detector, images, models
from tests.unit.model_registry.conftest import answer, fields_of, run, run_here
from tests.unit.model_registry.onnx_tools.test_remove_zipmap import zipped

pytestmark = pytest.mark.usefixtures("folder")


def named_inputs(path: Path) -> None:
    """y = distance + 2 * dep_delay, each of (B, 1)."""
    names = ["distance", "dep_delay"]
    nodes = [helper.make_node("Concat", names, ["x"], axis=1), helper.make_node("MatMul", ["x", "w"], ["y"])]
    inputs = [models.tensor(name, TensorProto.FLOAT, "N", 1) for name in names]
    models.save(nodes, inputs, [models.Y], path, [models.constant("w", [[1.0], [2.0]])])


def image(path: Path) -> None:
    """y = the means of the three channels of an image (B, 3, 8, 8)."""
    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["p"]), helper.make_node("Flatten", ["p"], ["y"])]
    outputs = [models.tensor("y", TensorProto.FLOAT, "N", 3)]
    models.save(nodes, [models.tensor("x", TensorProto.FLOAT, "N", 3, 8, 8)], outputs, path)


def write_events(path: Path, events: list[Any]) -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def completed(text: str, *filled: tuple[str, str]) -> str:
    for gap, value in filled:
        assert text.count(gap) == 1
        text = text.replace(gap, value)
    return text


CARD_GAP = f"{BLANK}: what the score says of an event, what the model was trained on, its limits."


def test_a_model_with_named_inputs_becomes_a_version(folder: Path) -> None:
    named_inputs(folder / "late.onnx")
    events = [{"id": f"e{n}", "distance": 100 * n, "leg": {"depDelay": n or None}, "carrier": "UA"} for n in range(8)]
    write_events(folder / "flights.jsonl", events)
    stdout = run("init", "late.onnx", "--example", "flights.jsonl").stdout
    drafted = folder / "late-1.0.0"
    gap = f'{BLANK}: the value to use if an event lacks this field ("nan" if the model accepts missing numbers)'
    assert f"open  signature.json: inputs[1].fields[0].default is {gap!r}\n" in stdout
    assert f"open  README.md line 3: {CARD_GAP!r}\n" in stdout
    assert "open  golden.jsonl: the score of 5 events\n" in stdout
    commands = [line.removeprefix("next  ") for line in stdout.splitlines() if line.startswith("next")]
    push = commands[0].split()[1:]

    refused = run(*push, code=3).stderr
    assert refused.startswith("error: late-1.0.0 is not complete: signature.json: inputs[1].fields[0].default is 'FILL IN")
    signature, card = drafted / "signature.json", drafted / "README.md"
    signature.write_text(completed(signature.read_text(), (json.dumps(gap), "0.5")))
    assert "README.md line 3: 'FILL IN" in run(*push, code=3).stderr
    card.write_text(completed(card.read_text(), (CARD_GAP, "How late a flight will be.")))

    unanswered = run(*push, code=3)
    assert "late-1.0.0/golden.jsonl has a score that is still to be filled in" in unanswered.stderr
    lines = [json.loads(line) for line in unanswered.stdout.splitlines()]
    assert [line["score"] for line in lines] == [1.0, 102.0, 204.0, 306.0, 408.0]
    assert [line["event"] for line in lines] == events[:5]
    (drafted / "golden.jsonl").write_text(unanswered.stdout)

    assert "the model gives the scores of its golden examples (5)" in run(*push).stderr
    output = run(*commands[1].split()[1:]).stdout
    assert fields_of(output)["depDelay"] == ["float32", "event: leg.depDelay", "default 0.5"]
    assert "output    score: the whole row of y\n" in output
    promoted = commands[2].replace('"', "").split()[1:]
    assert "prod: nothing -> 1.0.0 (revision 1)" in run(*promoted[:-2], "first").stdout
    assert answer("inspect", "oci:./registry/late:prod")["version"] == "1.0.0"


def test_fields_of_a_table_are_joined(folder: Path) -> None:
    named_inputs(folder / "late.onnx")
    events = [{"distance": 100 * n, "carriers.dep_delay": n, "other.dep_delay": "-"} for n in range(2)]
    write_events(folder / "flights.jsonl", events)
    drafted = answer("init", "late.onnx", "--example", "flights.jsonl", "--table", "carriers")
    assert drafted["notes"][0] == (
        "field carriers.dep_delay is required: an event without a row in the table carriers is a dead letter; to score such an "
        'event, add "default"'
    )
    package = folder / "late-1.0.0"
    assert json.loads((package / "signature.json").read_text())["inputs"][1] == {
        "tensor": "dep_delay",
        "dtype": "float32",
        "fields": [{"name": "carriers.dep_delay", "from": "table:carriers"}],
    }
    golden = [json.loads(line) for line in (package / "golden.jsonl").read_text().splitlines()]
    assert [(line["event"], line["score"]) for line in golden] == [(events[0], 0.0), (events[1], 102.0)]

    (package / "README.md").write_text("# Late\n\nHow late a flight will be.\n")
    run(*drafted["next"][0].split()[1:])
    output = run("inspect", "oci:./registry/late:1.0.0").stdout
    assert fields_of(output)["carriers.dep_delay"] == ["float32", "table:carriers", "required"]


def test_a_table_without_example_fields_is_refused(folder: Path) -> None:
    named_inputs(folder / "late.onnx")
    write_events(folder / "flights.jsonl", [{"distance": 1, "dep_delay": 2}])
    refused = run("init", "late.onnx", "--example", "flights.jsonl", "--table", "carriers", code=3).stderr
    assert "--table carriers: no example event has a field whose name begins with carriers." in refused
    assert 'write the joined values into the file of --example, such as {"carriers.age": 41}' in refused
    invalid = run("init", "late.onnx", "--example", "flights.jsonl", "--table", "a.b", code=3).stderr
    assert "--table: 'a.b' is not the name of a table" in invalid


def assert_first_score_is_the_mean_colour(golden: Path, x: np.ndarray[Any, Any]) -> None:
    means = dict(zip(["red", "green", "blue"], x.mean(axis=(1, 2)).tolist(), strict=True))
    (first, _) = [json.loads(line) for line in golden.read_text().splitlines()]
    document = {entry["label"]: entry["score"] for entry in first["score"]}
    assert list(document) == sorted(means, key=lambda label: -means[label])
    assert document == pytest.approx(means, abs=1e-6)
    assert first["tolerance"] == 1e-4


def test_a_model_of_images_becomes_a_version(folder: Path) -> None:
    image(folder / "pixels.onnx")
    x = np.random.default_rng(3).normal(size=(2, 3, 8, 8)).round(3)
    events = [{"id": "a", "data": {"photo": x[0].tolist(), "at": 1}}, {"id": "b", "data": {"photo": x[1].tolist(), "at": 2}}]
    write_events(folder / "images.jsonl", events)
    (folder / "labels.txt").write_text("red\ngreen\nblue\n")
    drafted = answer(
        "init", "pixels.onnx", "--example", "images.jsonl", "--labels", "labels.txt", "--into", "models/Pixel Net-2.1"
    )
    assert drafted["files"] == ["model.onnx", "signature.json", "golden.jsonl", "README.md"]
    assert drafted["gaps"] == [f"README.md line 3: {CARD_GAP!r}"]
    assert drafted["notes"][0] == "input 'x' takes data.photo, the only array that fits it"
    assert drafted["next"][0] == "model-registry push 'models/Pixel Net-2.1' oci:./registry/pixel-net:2.1"
    package = folder / "models" / "Pixel Net-2.1"
    assert json.loads((package / "signature.json").read_text()) == {
        "inputs": [
            {
                "tensor": "x",
                "dtype": "float32",
                "shape": [3, 8, 8],
                "fields": [{"name": "photo", "path": "data.photo", "array": True}],
            }
        ],
        "output": {"tensor": "y", "top": 3},
        "labels": ["red", "green", "blue"],
        "decision": {"argmax": True},
    }
    assert_first_score_is_the_mean_colour(package / "golden.jsonl", x[0])

    (package / "README.md").write_text("# Pixel Net 2.1\n\nThe colour of a picture.\n")
    run("push", str(package), "oci:./registry/pixel-net:2.1")
    output = run("inspect", "oci:./registry/pixel-net:2.1").stdout
    assert fields_of(output)["photo"] == ["float32[3, 8, 8]", "event: data.photo", "required"]
    assert "output    score: the 3 largest of y, of red, green, blue\n" in output
    assert "decision  the label of the largest\n" in output
    run("promote", "oci:./registry/pixel-net", "--to", "2.1")


def test_an_image_in_base64_is_recognised_by_its_size(folder: Path) -> None:
    image(folder / "pixels.onnx")
    x = np.random.default_rng(3).normal(size=(3, 8, 8)).astype("<f4")
    write_events(folder / "images.jsonl", [{"id": "a", "x": binary_fields.to_base64(x.tobytes())}])
    drafted = answer("init", "pixels.onnx", "--example", "images.jsonl")
    note = "input 'x' takes x as bytes in base64; where the record's value is nothing but the bytes, add "
    assert drafted["notes"][0] == note + '"from": "value" to the field'
    signature = json.loads((folder / "pixels-1.0.0" / "signature.json").read_text())
    assert signature["inputs"][0] == {
        "tensor": "x",
        "dtype": "float32",
        "shape": [3, 8, 8],
        "fields": [{"name": "x", "bytes": True}],
    }
    (golden,) = [json.loads(line) for line in (folder / "pixels-1.0.0" / "golden.jsonl").read_text().splitlines()]
    assert golden["score"] == pytest.approx(x.mean(axis=(1, 2)).tolist(), abs=1e-6)
    write_events(folder / "short.jsonl", [{"x": binary_fields.to_base64(x.tobytes()[:-1])}])
    drafted = answer("init", "pixels.onnx", "--example", "short.jsonl", "--into", "short-1.0.0")
    assert drafted["gaps"][0].endswith("an array of shape [3, 8, 8], nested or flat; the examples have x, which does not fit'")


def test_fields_in_arrays_of_objects_are_drafted(folder: Path) -> None:
    named_inputs(folder / "late.onnx")
    legs = [[{"distance": 1.5, "dep_delay": 2}], [{"distance": 3, "dep_delay": 4}, {"distance": 5, "dep_delay": 6}]]
    write_events(folder / "trips.jsonl", [{"legs": entry} for entry in legs])
    drafted = answer("init", "late.onnx", "--example", "trips.jsonl")
    assert "input 'distance' takes legs[0].distance; other places of the array are not read" in drafted["notes"]
    signature = json.loads((folder / "late-1.0.0" / "signature.json").read_text())
    assert [entry["fields"] for entry in signature["inputs"]] == [
        [{"name": name, "path": f"legs[0].{name}"}] for name in ("distance", "dep_delay")
    ]
    write_events(folder / "pairs.jsonl", [{"legs": legs[1]}])
    drafted = answer("init", "late.onnx", "--example", "pairs.jsonl", "--into", "pairs-1.0.0")
    note = """one float32; the examples have legs[0].distance and legs[1].distance: write the "path" of one'"""
    assert drafted["gaps"][0].endswith(note)


def test_invalid_golden_examples_are_refused(folder: Path) -> None:
    named_inputs(folder / "late.onnx")
    answer("init", "late.onnx")
    (folder / "late-1.0.0" / "README.md").write_text("# late\n")
    (folder / "late-1.0.0" / "golden.jsonl").write_text("\n")
    stdout = run("push", "late-1.0.0", "oci:./registry/late:1.0.0", code=3).stderr
    assert 'error: late-1.0.0/golden.jsonl has no example\nhint: write events with the score "FILL IN", or remove' in stdout


def test_a_model_of_image_files_becomes_a_version(folder: Path) -> None:
    images.colour(folder / "colour.onnx")
    write_events(folder / "images.jsonl", [{"image": base64.b64encode(images.plain(3, 2, 1)).decode()}])
    run("init", "colour.onnx", "--example", "images.jsonl", "--op-domain", images.DOMAIN)
    drafted = folder / "colour-1.0.0"
    text = (drafted / "signature.json").read_text()
    (drafted / "signature.json").write_text(completed(text, (f'"{BLANK}: the largest number of bytes in an event"', "2000000")))
    assert parse_signature((drafted / "signature.json").read_text()) == parse_signature(json.dumps(images.COLOUR))
    (drafted / "README.md").write_text("# colour\n\nThe mean colour of an image.\n")
    golden = json.loads((drafted / "golden.jsonl").read_text())
    (drafted / "golden.jsonl").write_text(json.dumps(golden | {"score": [1, 2, 3]}) + "\n")
    run("push", str(drafted), "oci:./registry/colour:1.0.0", "--op-domain", images.DOMAIN)


def test_nothing_is_overwritten(folder: Path) -> None:
    image(folder / "pixels.onnx")
    run("init", "pixels.onnx")
    before = {path: path.read_bytes() for path in (folder / "pixels-1.0.0").iterdir()}
    refused = run("init", "pixels.onnx", code=3).stderr
    assert "error: pixels-1.0.0/model.onnx exists, and nothing is overwritten\nhint: choose another folder" in refused
    (folder / "pixels-1.0.0" / "signature.json").unlink()
    refused = run("init", "pixels-1.0.0/model.onnx", "--into", "pixels-1.0.0", code=3).stderr
    assert "error: pixels-1.0.0/README.md exists" in refused
    (folder / "pixels-1.0.0" / "README.md").unlink()
    assert answer("init", "pixels-1.0.0/model.onnx", "--into", "pixels-1.0.0")["files"] == ["signature.json", "README.md"]
    assert {path: path.read_bytes() for path in (folder / "pixels-1.0.0").iterdir()} == before


def test_weights_beside_the_model_are_copied(folder: Path) -> None:
    models.linear(folder / "linear.onnx", 2.0)
    onnx.save(
        onnx.load(folder / "linear.onnx"), folder / "big.onnx", save_as_external_data=True, location="big.bin", size_threshold=0
    )
    drafted = answer("init", "big.onnx")
    assert drafted["files"] == ["model.onnx", "big.bin", "signature.json", "README.md"]
    (folder / "big-1.0.0" / "README.md").write_text("# big\n")
    run("push", "big-1.0.0", "oci:./registry/big:1.0.0")


def test_a_detector_is_drafted_with_its_labels(folder: Path) -> None:
    detector.write(folder / "detector.onnx")
    (folder / "labels.txt").write_text("\n".join(detector.LABELS))
    write_events(folder / "events.jsonl", [{"x": [1.0, 2.0, 3.0]}, {"x": [0.0, 1.0, 0.0]}])
    drafted = answer("init", "detector.onnx", "--labels", "labels.txt", "--example", "events.jsonl")
    assert "no score is read from best, word, sure, anchors" in drafted["notes"]
    document = parse_signature((folder / "detector-1.0.0" / "signature.json").read_bytes())
    assert [(entry.name, entry.shape, entry.top) for entry in document.outputs] == [("boxes", (2, 4), None), ("p", None, 3)]
    (folder / "detector-1.0.0" / "README.md").write_text("# detector\n")
    assert answer("push", "detector-1.0.0", "oci:./registry/detector:1.0.0")["golden_examples"] == 2


@pytest.mark.parametrize(
    ("arguments", "content", "message"),
    [
        (["--example", "x"], b'{"a": 1}\n[1]\n', "x line 2: it is not a JSON object"),
        (["--example", "x"], b'{"a": 1}\n{"a": \n', "x line 2: it is not valid JSON"),
        (["--example", "x"], b'\n{"a": ' + b"[" * 5_000, "x line 2: it is not valid JSON"),
        (["--example", "x"], b'{"a": "' + b"a" * (16 << 20) + b'"}', "x line 1: it has more than 16777216 bytes"),
        (["--example", "x"], b"\n\n", "x has no event"),
        (["--labels", "x"], b"cat\ncat\n", "x: label 'cat' is repeated"),
        (["--labels", "x"], b"cat\n\ndog\n", "x: line 2 is empty"),
        (["--labels", "x"], b"", "x: the file is empty"),
        (["--labels", "x"], b"\xff\n", "x: 'utf-8' codec can't decode"),
        (["--labels", "x"], b"a\n" * (1 << 20), "x: the file has more than 1048576 bytes"),
    ],
)
def test_invalid_events_and_labels_are_refused(folder: Path, arguments: list[str], content: bytes, message: str) -> None:
    image(folder / "pixels.onnx")
    (folder / "x").write_bytes(content)
    assert message in run("init", "pixels.onnx", *arguments, code=3).stderr
    assert not (folder / "pixels-1.0.0").exists()


def test_a_file_that_is_no_model_is_refused(folder: Path) -> None:
    (folder / "x.onnx").write_bytes(b"no model")
    assert "x.onnx is not a valid ONNX file" in run("init", "x.onnx", code=3).stderr
    assert "No such file" in run("init", "y.onnx", code=4).stderr
    models.contrib(folder / "odd.onnx")
    assert run("init", "odd.onnx").exit_code == 0


def test_scores_are_gaps_if_the_model_cannot_be_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named_inputs(folder / "late.onnx")
    write_events(folder / "flights.jsonl", [{"distance": 100, "dep_delay": 1}])
    without = folder / "without"
    without.mkdir()
    (without / "onnxruntime.py").write_text("raise ImportError('not installed')")
    monkeypatch.syspath_prepend(without)  # for a child process that imports everything itself
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # for one that is forked
    drafted = json.loads(run_here("init", "late.onnx", "--example", "flights.jsonl", "--json").stdout)
    assert "golden.jsonl has events without scores: ONNX Runtime is not installed" in drafted["notes"]
    assert drafted["gaps"][-1] == "golden.jsonl: the score of 1 events"
    (folder / "late-1.0.0" / "README.md").write_text("# late\n")
    for model in ("model.onnx", "saved_model"):
        (folder / "late-1.0.0" / "model.onnx").rename(folder / "late-1.0.0" / model)
        refused = run_here("push", "late-1.0.0", "oci:./registry/late:1.0.0", code=3)
        assert "late-1.0.0/golden.jsonl has a score that is still to be filled in\nhint: write what the model" in refused.stderr
        assert refused.stdout == ""
        (folder / "late-1.0.0" / model).rename(folder / "late-1.0.0" / "model.onnx")


def test_gaps_of_a_package_are_listed(tmp_path: Path) -> None:
    (tmp_path / "signature.json").write_text(json.dumps({"output": [BLANK] * 7}))
    with pytest.raises(Refused) as caught:
        placeholders.check(tmp_path)
    assert "signature.json: output[0] is 'FILL IN'; " in str(caught.value)
    assert str(caught.value).endswith("; and 2 more")
    (tmp_path / "signature.json").write_bytes(b"[" * 5_000)
    placeholders.check(tmp_path)


def test_a_final_zipmap_is_removed_and_the_note_names_the_classes(folder: Path) -> None:
    zipped(folder / "late.onnx", {"classlabels_strings": ["early", "late"]})
    drafted = answer("init", "late.onnx", "--into", "late-1.0.0")
    assert drafted["notes"][0].startswith("the final ZipMap was removed (the numbers are the same): output 'probability' has")
    output = json.loads((folder / "late-1.0.0" / "signature.json").read_text())["output"]
    assert output == {
        "tensor": "probability",
        "index": f"{BLANK}: the column that is the score, from 0; without index it is the whole row",
    }
    names = [entry.name for entry in onnx.load(str(folder / "late-1.0.0" / "model.onnx")).graph.output]
    assert names == ["label", "probability"]
    refused = run("push", "late-1.0.0", "oci:registry/late:1.0.0", code=3).stderr
    assert "is not complete" in refused


def test_an_input_that_no_event_can_feed_is_named(folder: Path) -> None:
    x = models.tensor("x", TensorProto.BFLOAT16, "N", 2)
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    models.save([node], [x], [models.tensor("y", TensorProto.FLOAT, "N", 2)], folder / "model.onnx")
    stdout = "input 'x' is bfloat16, which no format of events has; export it with float32 or float16"
    assert stdout in run("init", "model.onnx", "--into", "made", code=3).stderr
    assert stdout in run("push", ".", "oci:registry/m:1.0.0", code=3).stderr
    sequence = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)
    nodes = [helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=0)]
    models.save(nodes, [sequence], [models.tensor("y", TensorProto.FLOAT, "N", 2)], folder / "model.onnx")
    stdout = "input 'x' is a sequence, which no event can feed; export the model with tensors as inputs"
    assert stdout in run("init", "model.onnx", "--into", "made", code=3).stderr
    assert stdout in run("push", ".", "oci:registry/m:1.0.0", code=3).stderr


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("model-v2-0-cls", "model-v2-0-cls:1.0.0"),
        ("resnet-50", "resnet-50:1.0.0"),
        ("resnet-50-2.1.0", "resnet-50:2.1.0"),
        ("Flight Delay-1.4.0-rc1", "flight-delay:1.4.0-rc1"),
        ("late", "late:1.0.0"),
    ],
)
def test_the_suggested_reference_takes_only_a_version_from_the_name_of_the_folder(
    folder: Path, name: str, reference: str
) -> None:
    named_inputs(folder / "late.onnx")
    drafted = answer("init", "late.onnx", "--into", f"made/{name}")
    assert drafted["next"][0].endswith(f" oci:./registry/{reference}")


def labelled_tokens(path: Path) -> None:
    """Write a model with a number for each token: y (B, seq) = 2 * ids."""
    nodes = [helper.make_node("Add", ["ids", "ids"], ["y"])]
    ids, y = (models.tensor(name, TensorProto.INT64, "batch", "seq") for name in ("ids", "y"))
    models.save(nodes, [ids], [y], path)


def summed_over_time(path: Path) -> None:
    """Write a model that sums frames (time, batch, 2) over time and their numbers."""
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)]
    x, y = models.tensor("x", TensorProto.FLOAT, "time", "batch", 2), models.tensor("y", TensorProto.FLOAT, "batch")
    models.save(nodes, [x], [y], path, [models.constant("axes", [0, 2], np.int64)])


@pytest.mark.parametrize(
    ("write", "events", "scores"),
    [
        (labelled_tokens, [{"ids": [1, 2]}, {"ids": [3, 4, 5]}], [[2, 4], [6, 8, 10]]),
        (summed_over_time, [{"x": [[[1, 2]], [[3, 4]]]}, {"x": [[[1, 1]]]}], [10.0, 2.0]),
    ],
    ids=["an answer for each token", "time first"],
)
def test_a_model_of_one_event_at_a_time_becomes_a_version(
    folder: Path, write: Callable[[Path], None], events: list[Any], scores: list[Any]
) -> None:
    write(folder / "odd.onnx")
    write_events(folder / "events.jsonl", events)
    answer("init", "odd.onnx", "--example", "events.jsonl")
    drafted = folder / "odd-1.0.0"
    signature = drafted / "signature.json"
    (gap,) = [text for _, text in placeholders.find_in_document(json.loads(signature.read_text()))]
    signature.write_text(completed(signature.read_text(), (json.dumps(gap), "16")))
    (drafted / "README.md").write_text("# odd\n")
    push = ["push", "odd-1.0.0", "oci:./registry/odd:1.0.0"]
    lines = run(*push, code=3).stdout
    assert [json.loads(line)["score"] for line in lines.splitlines()] == scores
    (drafted / "golden.jsonl").write_text(lines)
    assert answer(*push)["golden_examples"] == 2


def test_a_bar_is_drawn_on_a_terminal_only(folder: Path) -> None:
    named_inputs(folder / "late.onnx")
    init = [sys.executable, "-m", "model_registry", "init", "late.onnx", "--into"]
    controller_fd, terminal_fd = pty.openpty()
    with os.fdopen(controller_fd, "rb", buffering=0) as terminal:
        completed_init = subprocess.run(
            [*init, "one"], stdout=subprocess.PIPE, stderr=terminal_fd, check=True, env=os.environ | {"TERM": "xterm"}
        )
        os.close(terminal_fd)
        assert b"converting the model" in terminal.read(1 << 16)
    assert completed_init.stdout.startswith(b"wrote")
    assert subprocess.run([*init, "two"], capture_output=True, check=True).stderr == b""
