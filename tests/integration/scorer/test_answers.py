"""Answers of any shape on the real broker: a detector's boxes, classes, words and numbers, from its package to the scores."""

import json

import pytest

from model_registry.package.golden_examples import agrees
from tests.integration.scorer.rig import MakeRig, until
from tests.support import detector


def test_a_detector_s_answers(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.push(detector.package(rig.folder / "detector"), "1.0.0")
    rig.promote("1.0.0")
    rig.create()
    description = rig.run("model-registry", "inspect", "oci:./registry/model:1.0.0").stdout
    assert "output    boxes: (B, 2, 4) of boxes\n" in description
    assert "output    classes: the 2 largest of p, of cat, dog, eel\n" in description
    assert "decision  the label of the largest of classes, unsure below 0.5\n" in description
    rig.run("scorer", "bench", "./detector", "--set", "batching.max_events=8")
    scorer = rig.start().ready()
    events = [(float(n % 7), float(n % 5), float(n % 3)) for n in range(300)]
    assert (
        rig.emit({"id": f"e{n}", "key": "k", **dict(zip("abc", values, strict=True))} for n, values in enumerate(events)) == 300
    )
    rig.produce(b'{"id": "bad", "key": "k", "a": 1, "b": 2}', key=b"k")
    until(lambda: rig.answered() == 301, "all answers")
    records = {record["id"]: record for record in rig.scores()}
    for number, event in enumerate(events):
        record, expected = records.pop(f"e{number}"), detector.answer(*event)
        assert agrees(expected, record["score"], 1e-5)
        best = expected["classes"][0]
        if abs(best["score"] - 0.5) > 1e-5:
            assert record["decision"] == (best["label"] if best["score"] >= 0.5 else "unsure")
    assert records == {}
    assert [letter["reason"] for letter in rig.dead()] == ["missing-field"]
    line = json.loads(rig.run("scorer", "tail", "scorer.yaml", "--no-follow").stdout.splitlines()[0])
    assert agrees(detector.answer(*events[0]), line["score"], 1e-5)
    assert scorer.stop() == 0
    rig.assert_audited(events=301)


@pytest.mark.parametrize("format_", ["avro", "protobuf"])
def test_records_with_types_have_nested_numbers_row_by_row(make_rig: MakeRig, format_: str) -> None:
    rig = make_rig(output={"format": format_})
    boxes, classes, *_, best = detector.OUTPUTS
    rig.push(detector.package(rig.folder / "boxes", detector.SIGNATURE | {"output": [boxes, best], "decision": None}), "1.0.0")
    rig.push(detector.package(rig.folder / "detector", detector.SIGNATURE | {"output": [boxes, classes]}), "2.0.0")
    rig.promote("2.0.0")
    rig.create(code=1)
    message = f"output 'classes' has classes with their labels (top), which records in {format_} cannot represent"
    assert f"{message}; set output.format to json" in rig.run("scorer", "check", "scorer.yaml", code=1).stderr
    rig.promote("1.0.0")
    rig.start().ready()
    rig.emit([{"id": "one", "key": "k", "a": 1, "b": 2, "c": 3}])
    until(lambda: rig.answered() == 1, "the score")
    (line,) = rig.run("scorer", "tail", "scorer.yaml", "--no-follow").stdout.splitlines()
    assert json.loads(line)["score"] == {"boxes": [1.0] * 4 + [2.0] * 4, "best": [2.0]}
