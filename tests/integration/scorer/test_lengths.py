"""Texts of many lengths through a small transformer on the real broker: every score is what ONNX Runtime gives for the event
alone, called directly."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from tests.integration.scorer.rig import MakeRig, until
from tests.support import models
from tests.support.graphs import encoder, encoder_inputs

LONGEST, VOCABULARY = 256, 100
SIGNATURE = {"inputs": encoder_inputs(LONGEST), "output": {"tensor": "y"}}


def texts(count: int) -> list[dict[str, Any]]:
    """Most of them short."""
    random = np.random.default_rng(11)
    sizes = np.exp(random.uniform(0, np.log(LONGEST), count)).round().astype(int)
    return [
        {"ids": random.integers(0, VOCABULARY, size).tolist(), "types": random.integers(0, 2, size).tolist()} for size in sizes
    ]


def directly(model: Path, events: list[dict[str, Any]]) -> list[float]:
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    scores = []
    for event in events:
        ids, types = (np.array([event[name]], np.int64) for name in ("ids", "types"))
        fed = {"input_ids": ids, "token_type_ids": types, "attention_mask": np.ones_like(ids)}
        scores.append(float(session.run(["y"], fed)[0][0, 0]))
    return scores


def test_texts_of_many_lengths(make_rig: MakeRig) -> None:
    rig = make_rig()
    valid, folder = texts(300), rig.folder / "texts"
    models.package(folder, lambda path: encoder(path, 2, 64, VOCABULARY, LONGEST, types=True), SIGNATURE)
    expected = directly(folder / "model.onnx", valid)
    golden = [{"event": event, "score": score, "tolerance": 1e-5} for event, score in zip(valid[:5], expected[:5], strict=True)]
    (folder / "golden.jsonl").write_text("".join(json.dumps(line) + "\n" for line in golden))
    rig.push(folder, "1.0.0")
    rig.promote("1.0.0")
    rig.create(partitions=1)
    rig.emit({"key": "k", "id": f"e{at:03}"} | event for at, event in enumerate(valid))
    invalid: list[dict[str, Any]] = [
        {"ids": [1, 2, 3], "types": [0]},
        {"ids": [1] * 257, "types": [0] * 257},
        {"ids": [1, "a"], "types": [0, 0]},
    ]
    rig.emit({"key": "k", "id": f"bad{at}"} | event for at, event in enumerate(invalid))
    scorer = rig.start().ready()
    until(lambda: rig.answered() == len(valid) + len(invalid), "all answers")
    records = rig.scores()
    assert [record["id"] for record in records] == [f"e{at:03}" for at in range(len(valid))]
    np.testing.assert_allclose([record["score"] for record in records], expected, atol=1e-5)
    assert [(letter["reason"], letter["error"]) for letter in rig.dead()] == [
        ("wrong-type", "fields 'ids' and 'types' have the lengths 3 and 1; one length for both was expected"),
        ("wrong-type", "field 'ids': a length of at most 256 was expected, not 257 (shape [-1])"),
        ("wrong-type", "field 'ids'[1]: 'a' is not a valid int64 (-9223372036854775808 to 9223372036854775807) (shape [-1])"),
    ]
    assert scorer.stop() == 0
    rig.assert_audited(events=len(valid) + len(invalid))
    description = rig.run("model-registry", "inspect", "oci:./registry/model:1.0.0").stdout
    assert "int64[-1] up to 256" in description
    assert "attention_mask: int64 (B, -1), mask of input_ids" in description
    schema = json.loads(rig.run("scorer", "schema", "oci:./registry/model:1.0.0", "--format", "json-schema").stdout)
    assert (schema["properties"]["ids"]["minItems"], schema["properties"]["ids"]["maxItems"]) == (0, 256)
    rig.run("scorer", "bench", "./texts", "--set", "batching.max_events=8")
