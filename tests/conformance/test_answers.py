"""Answers of any shape: from a model's outputs to score records, compared with the version's golden examples."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from model_registry import package
from model_registry.errors import Refused
from model_registry.onnx_tools.prepare_package import prepare
from model_registry.package import model_outputs
from model_registry.package.golden_examples import agrees
from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from scorer.backends.base import ModelRefused
from scorer.models.loaded_model import LoadedModel, loader
from scorer.scores import formats
from scorer.scores.outputs import Scores
from scorer.settings import Settings
from tests.support import detector
from tests.unit.scorer.decoding.schema_events import settings_of

PROVENANCE = {"model": "m", "version": "1", "digest": "sha256:0", "role": "champion", "region": "eu"}
OUTPUTS: dict[str, dict[str, Any]] = {str(output["name"]): output for output in detector.OUTPUTS}
BOXES, CLASSES, WORD, SURE, BEST = OUTPUTS.values()
RULE = {"threshold": 0.5, "at_or_above": "a", "below": "b", "output": "boxes"}


def loaded(folder: Path, settings: Settings | None = None) -> LoadedModel:
    version = package.read(folder, name="detector", version="1", digest=f"sha256:{'1':0>64}")
    return loader(settings or settings_of("json"))(version)


def test_a_detector_returns_the_answers_of_its_golden_examples(tmp_path: Path) -> None:
    folder = detector.package(tmp_path / "detector")
    ready = prepare(folder)
    assert ready.onnxruntime_version
    model = loaded(folder)
    events = [(1.0, 2.0, 3.0), (4.0, 0.0, 1.0), (0.0, 0.0, 0.0)]
    decoded = model.decoder.decode([json.dumps(dict(zip("abc", event, strict=True))).encode() for event in events])
    scores = model.score(decoded.tensors)
    assert scores.finite().all()
    assert scores.joined() is None
    assert scores.decisions() == ["eel", "cat", "unsure"]
    for event, answer in zip(events, map(orjson.loads, scores.encoded()), strict=True):
        expected = detector.answer(*event)
        assert list(answer) == list(expected)
        assert agrees(expected, answer, 1e-5)
    equal = orjson.loads(scores.encoded()[2])["classes"]
    assert [entry["label"] for entry in equal] == ["cat", "dog"]


@pytest.mark.parametrize("buckets", [[], [1, 4]], ids=["own size", "buckets"])
def test_several_outputs_of_other_shapes_in_buckets(tmp_path: Path, buckets: list[int]) -> None:
    numbers = [BOXES, CLASSES, SURE, BEST]
    folder = detector.package(tmp_path / "detector", detector.SIGNATURE | {"output": numbers})
    settings = settings_of("json")
    settings = settings.model_copy(update={"model": settings.model.model_copy(update={"buckets": buckets})})
    model = loaded(folder, settings)
    x = np.random.default_rng(1).normal(size=(7, 3)).astype(np.float32)
    for row, encoded in zip(x.tolist(), model.score({"x": x}).encoded(), strict=True):
        expected = detector.answer(*row)
        expected.pop("word")
        assert agrees(expected, json.loads(encoded), 1e-5)


def test_a_wrong_golden_example_is_refused(tmp_path: Path) -> None:
    folder = detector.package(tmp_path / "detector")
    lines = [json.loads(line) for line in (folder / "golden.jsonl").read_text().splitlines()]
    lines[1]["score"]["classes"][1]["label"] = "dog"
    (folder / "golden.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(Refused, match="golden example 2 must score"):
        prepare(folder)
    with pytest.raises(ModelRefused, match="golden example 2 must score"):
        loaded(folder)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"output": [BOXES | {"shape": [100, 4]}]}, "the signature states (B, 100, 4), but the model gives (N, 2, 4)"),
        ({"output": [BOXES | {"shape": [4]}]}, "output 'boxes': the signature states (B, 4), but the model gives (N, 2, 4)"),
        (
            {"labels": ["cat", "dog"]},
            "output 'p' must have the shape (B, 2), one column for each label, but the model gives (N, 3)",
        ),
        ({"output": [WORD | {"top": 1}], "decision": None}, "output 'word' is string; only a row of numbers has"),
        (
            {"output": [BEST | {"top": 1}], "decision": None},
            "output 'best' must have the shape (B, 3), one column for each label, but",
        ),
        (
            {"output": {"tensor": "anchors"}, "labels": None, "decision": None},
            "output 'anchors' has shape (2, 4), not one row for each of",
        ),
    ],
)
def test_outputs_that_do_not_fit_are_refused_at_push_and_at_start(tmp_path: Path, parts: dict[str, Any], message: str) -> None:
    rule = {"decision": None} if "output" in parts else {}
    folder = detector.package(tmp_path / "detector", detector.SIGNATURE | rule | parts)
    for refused in (lambda: prepare(folder), lambda: loaded(folder)):
        with pytest.raises((Refused, ModelRefused)) as caught:
            refused()
        assert message in str(caught.value)


@pytest.mark.parametrize("format_", ["avro", "protobuf"])
@pytest.mark.parametrize(
    ("output", "kind"),
    [
        (CLASSES, "classes with their labels (top)"),
        (WORD, "strings"),
        (BOXES | {"shape": [-1, -1]}, "arrays of several open lengths"),
    ],
    ids=["top", "strings", "open lengths"],
)
def test_records_with_types_have_no_place_for_text(tmp_path: Path, format_: str, output: dict[str, Any], kind: str) -> None:
    folder = detector.package(tmp_path / "detector", detector.SIGNATURE | {"output": [output], "decision": None})
    with pytest.raises(ModelRefused) as caught:
        loaded(folder, settings_of("json", output=format_))
    message = f"output {output['name']!r} has {kind}, which records in {format_} cannot represent; set output.format to json"
    assert str(caught.value) == message


def test_a_threshold_decides_on_one_number(tmp_path: Path) -> None:
    folder = detector.package(tmp_path / "detector", detector.SIGNATURE | {"output": [BOXES], "labels": None, "decision": RULE})
    with pytest.raises(ModelRefused, match="the score is not a single number"):
        loaded(folder)


def signature(output: Any, **parts: Any) -> Signature:
    return parse_signature(json.dumps({"inputs": detector.INPUTS, "output": output, **parts}))


kinds = st.sampled_from([np.float32, np.float64, np.int32, np.uint8, np.bool_])
shapes = arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=3)


@st.composite
def nested(draw: st.DrawFn, rows: int) -> Any:
    dtype = np.dtype(draw(kinds))
    elements = arrays.from_dtype(dtype, allow_nan=False, allow_infinity=False, allow_subnormal=False)
    return draw(arrays.arrays(dtype, (rows, *draw(shapes)), elements=elements))


def flat(value: Any) -> list[float]:
    return [number for part in value for number in flat(part)] if isinstance(value, list) else [float(value)]


@given(st.integers(1, 4).flatmap(lambda rows: st.lists(nested(rows), min_size=1, max_size=3)))
def test_nested_answers_survive_every_record(tensors: list[Any]) -> None:
    """JSON preserves the shape; Avro and Protobuf have the elements row by row."""
    names = [f"o{number}" for number in range(len(tensors))]
    outputs = dict(zip(names, tensors, strict=True))
    alone = len(tensors) == 1
    output = {"tensor": "o0"} if alone else [{"name": name, "tensor": name} for name in names]
    scores = Scores(signature(output), outputs)
    expected = model_outputs.read_scores(signature(output), outputs)
    rows = len(scores)
    columns = (
        [f"e{row}" for row in range(rows)],
        scores.encoded(),
        scores.decisions(),
        [("t", 0)] * rows,
        [0] * rows,
        [0] * rows,
    )
    for format_ in ("json", "avro", "protobuf"):
        configured = settings_of("json", output=format_)
        records = formats.encoder(configured, **PROVENANCE).encode(*columns, "scored", 1)
        for record, value in zip(records, expected, strict=True):
            score = json.loads(formats.as_json(configured)(record))["score"]
            answers = {"": score} if alone else score
            expected_answers = {"": value} if alone else value
            assert answers.keys() == expected_answers.keys()
            for name, answer in answers.items():
                assert np.allclose(flat([answer]), flat([expected_answers[name]]), rtol=1e-6, atol=0)
                assert format_ != "json" or np.shape(answer) == np.shape(expected_answers[name])


texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), min_size=1, max_size=4)


@given(texts)
def test_words_survive(words: list[str]) -> None:
    column = np.array(words, object)
    for array in (column, np.stack([column, column], axis=1)):
        scores = Scores(signature({"tensor": "w"}), {"w": array})
        assert [json.loads(row) for row in scores.encoded()] == array.tolist()


@given(arrays.arrays(np.float32, (3, 4), elements=st.floats(0, 1, width=32)), st.integers(1, 4))
def test_the_top_classes_of_a_record_equal_those_of_a_sort(p: Any, top: int) -> None:
    labels = ["a", 'b"', "c,", "é"]
    scores = Scores(signature({"tensor": "p", "top": top}, labels=labels), {"p": p})
    for encoded, row, decision in zip(scores.encoded(), p.tolist(), scores.decisions(), strict=True):
        order = sorted(range(4), key=lambda at: -row[at])[:top]
        classes = json.loads(encoded)
        assert [entry["label"] for entry in classes] == [labels[at] for at in order]
        assert np.array_equal(np.array([entry["score"] for entry in classes], np.float32), np.array(row, np.float32)[order])
        assert decision == labels[order[0]]


def test_a_class_that_is_not_finite_is_reported() -> None:
    p = np.array([[0.5, np.nan, 0.25], [0.5, 0.25, 0.25]], np.float32)
    scores = Scores(signature({"tensor": "p", "top": 1}, labels=detector.LABELS), {"p": p})
    assert scores.finite().tolist() == [False, True]
    assert json.loads(scores.encoded()[1]) == [{"label": "cat", "score": 0.5}]
