"""Values from everywhere in a record, on the real broker: images that are whole values, with features in keys and headers."""

import base64
import json
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from tests.integration.scorer.rig import MakeRig, until
from tests.support import images as files
from tests.support import models

SHAPE = (3, 8, 8)
IMAGES = {
    "inputs": [
        {"tensor": "image", "dtype": "uint8", "shape": [*SHAPE], "fields": [{"name": "image", "bytes": True, "from": "value"}]},
        {
            "tensor": "x",
            "dtype": "float32",
            "fields": [{"name": "price", "from": "key"}, {"name": "store", "from": "header:store", "default": 0.5}],
        },
        {"tensor": "at", "dtype": "int64", "shape": [], "fields": [{"name": "at", "from": "time"}]},
    ],
    "output": [{"name": "sum", "tensor": "y"}, {"name": "at", "tensor": "then"}],
}


def images(path: Path) -> None:
    """y = the mean of an image + price + store; then = at, as float64."""
    nodes = [
        helper.make_node("Cast", ["image"], ["pixels"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["pixels"], ["mean"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("ReduceSum", ["x", "one"], ["features"], keepdims=0),
        helper.make_node("Add", ["mean", "features"], ["y"]),
        helper.make_node("Cast", ["at"], ["then"], to=TensorProto.DOUBLE),
    ]
    inputs = [
        models.tensor("image", TensorProto.UINT8, "N", *SHAPE),
        models.tensor("x", TensorProto.FLOAT, "N", 2),
        models.tensor("at", TensorProto.INT64, "N"),
    ]
    outputs = [models.tensor("y", TensorProto.FLOAT, "N"), models.tensor("then", TensorProto.DOUBLE, "N")]
    models.save(nodes, inputs, outputs, path, [models.constant("one", [1], np.int64)])


def image(number: int) -> bytes:
    return np.full(SHAPE, number, np.uint8).tobytes()


def test_an_image_is_the_value_and_its_features_are_in_key_and_headers(make_rig: MakeRig) -> None:
    rig = make_rig(input={"format": "bytes", "id": "header:ce_id"}, batching={"max_events": 500})
    event = {"image": base64.b64encode(image(7)).decode(), "price": 2.5, "store": 3, "at": 1_700_000_000_000}
    golden = [{"event": event, "score": {"sum": 12.5, "at": 1_700_000_000_000}, "tolerance": 1e-4}]
    rig.push(models.package(rig.folder / "images", images, IMAGES, golden), "1.0.0")
    rig.promote("1.0.0")
    rig.create()
    lines = [
        {"image": base64.b64encode(image(n % 256)).decode(), "price": n / 4, "store": n % 5, "name": f"e{n}"}
        for n in range(300)
    ]
    options = ("--value", "image", "--base64", "--header", "store={store}", "--header", "ce_id={name}")
    assert rig.emit(lines, *options, key="{price}") == 300
    message = rig.run("scorer", "emit", "scorer.yaml", "--value", "image", code=2, stdin=b'{"picture": ""}\n').stderr
    assert "line 1: the event has no field 'image' for its value" in message
    assert "the newest 300 events" in rig.run("scorer", "check", "scorer.yaml").stderr
    scorer = rig.start().ready()
    rig.produce(image(1), key=b"1", headers=[("ce_id", b"default")])
    rig.produce(image(1)[:-1], key=b"1", headers=[("ce_id", b"short")])
    rig.produce(image(1), key=b"cheap", headers=[("ce_id", b"words")])
    rig.produce(image(1), key=b"1", headers=[("store", b"\xff"), ("ce_id", b"text")])
    until(lambda: rig.answered() == 304, "all answers")
    records = {record["id"]: record for record in rig.scores()}
    assert {name: record["score"]["sum"] for name, record in records.items()} == {
        **{f"e{n}": n % 256 + n / 4 + n % 5 for n in range(300)},
        "default": 2.5,
    }
    assert all(record["score"]["at"] == record["event_ms"] > 0 for record in records.values())
    assert sorted((letter["reason"], letter["error"]) for letter in rig.dead()) == [
        ("not-utf8", "field 'store' (header:store) is b'\\xff', which is not UTF-8; write text in UTF-8"),
        ("wrong-type", "field 'image' (value): 191 bytes, but 192 were expected (192 of uint8)"),
        ("wrong-type", "field 'price' (key): 'cheap' is not a valid float32"),
    ]
    assert scorer.stop() == 0
    rig.assert_audited(events=304)


COLOUR = files.COLOUR | {"inputs": [files.COLOUR["inputs"][0] | {"fields": [files.FILE | {"from": "value"}]}]}


def test_a_topic_of_image_files_goes_to_the_models_own_decoder(make_rig: MakeRig) -> None:
    rig = make_rig(
        input={"format": "bytes", "id": "header:ce_id"},
        model={"op_domains": ["com.microsoft", files.DOMAIN]},
        batching={"max_events": 50},
    )
    golden = [{"event": {"image": base64.b64encode(files.plain(3, 2, 1)).decode()}, "score": [1, 2, 3], "tolerance": 1e-4}]
    folder = models.package(rig.folder / "colour", files.colour, COLOUR, golden)
    rig.push(folder, "1.0.0", "--op-domain", files.DOMAIN)
    rig.promote("1.0.0")
    rig.create()
    output = rig.run("model-registry", "inspect", "oci:./registry/model:1.0.0").stdout
    (image,) = [line for line in output.splitlines() if line.startswith("image ")]
    assert image.split(maxsplit=1)[1].rstrip() == "the bytes of uint8[-1] up to 2000000  value  required"
    scorer = rig.start().ready()
    sizes = [(1 + n % 40, 1 + n % 30) for n in range(60)]
    lines = [
        {"image": base64.b64encode(files.plain(n, 2 * n, 3 * n, *size)).decode(), "name": f"i{n}"}
        for n, size in enumerate(sizes)
    ]
    assert rig.emit(lines, "--value", "image", "--base64", "--header", "ce_id={name}", key=None) == 60
    rig.produce(b"no image", key=b"k", headers=[("ce_id", b"text")])
    until(lambda: rig.answered() == 61, "all answers")
    scores = {record["id"]: record["score"] for record in rig.scores()}
    assert scores == {f"i{n}": [3.0 * n, 2.0 * n, float(n)] for n in range(60)}
    (letter,) = rig.dead()
    assert letter["reason"] == "crashes-scorer"  # the library ends the process over what is no image at all
    assert "ended with code 1 twice" in letter["error"]
    assert scorer.stop() == 0
    rig.assert_audited(events=61)


def test_commands_describe_values_from_keys_and_headers(make_rig: MakeRig) -> None:
    rig = make_rig(input={"format": "bytes", "id": "header:ce_id"})
    rig.push(models.package(rig.folder / "images", images, IMAGES), "1.0.0")
    rig.promote("1.0.0")
    output = rig.run("model-registry", "inspect", "oci:./registry/model:1.0.0").stdout
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert lines[lines.index("field type from if absent") :][1:5] == [
        "image the bytes of uint8[192] value required",
        "price float32 key required",
        "store float32 header:store default 0.5",
        "at int64 time required",
    ]
    assert "One process scores" in rig.run("scorer", "bench", "./images", "--set", "batching.max_events=8").stdout
    schema = json.loads(rig.run("scorer", "schema", "./images").stdout)
    assert schema["description"].startswith(
        "Elsewhere in the record: image (bytes of uint8) from value, price (float32) from key"
    )
    output = rig.run("scorer", "check", "scorer.yaml", "--set", "input.format=float32", code=1).stderr
    assert "no field is inside the value, and input.format float32 reads fields; use bytes" in output
