"""Models with operators of onnxruntime-extensions: loaded if the domain is allowed and the library is installed."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_registry import package
from model_registry.errors import Refused
from model_registry.extras import install_command
from model_registry.onnx_tools import runtime_requirements
from model_registry.onnx_tools.prepare_package import prepare
from scorer.backends import select
from scorer.backends.base import ModelRefused
from scorer.decoding import decoder_factory
from scorer.models.loaded_model import loader
from scorer.settings.model import ModelSettings
from tests.support import models
from tests.unit.scorer.decoding.schema_events import settings_of
from tests.unit.scorer.minimal import minimal

DOMAINS = ["com.microsoft", "ai.onnx.contrib"]
MISSING = "the model uses the operator 'StringLower' of domain ai.onnx.contrib, and onnxruntime-extensions is not installed: "


def texts(**field: Any) -> dict[str, Any]:
    """Return a signature with one text."""
    tensor = {"tensor": "text", "dtype": "string", "shape": [], "fields": [{"name": "text", **field}]}
    return {"inputs": [tensor], "output": {"tensor": "y"}}


def classifier(folder: Path, **field: Any) -> Path:
    golden = [
        {"event": {"text": text}, "score": score, "tolerance": 1e-5}
        for text, score in (("A GOOD good day", 0.982014), ("bad", 0.119203), ("", 0.5))
    ]
    return models.package(folder / "words", models.words, texts(**field), golden)


def read(folder: Path) -> package.Package:
    return package.read(folder, name="words", version="1", digest=f"sha256:{'1':0>64}")


@pytest.mark.parametrize(
    ("format_", "field", "write"),
    [
        ("bytes", {"from": "value"}, str.encode),
        ("json", {}, lambda text: b'{"text": "%b"}' % text.encode()),
        ("json", {"path": "a.text"}, lambda text: b'{"a": {"text": "%b"}}' % text.encode()),
    ],
)
def test_a_text_classifier_is_loaded_and_scores(tmp_path: Path, format_: str, field: dict[str, Any], write: Any) -> None:
    golden = () if "path" in field else None
    folder = models.package(tmp_path / "w", models.words, texts(**field)) if golden == () else classifier(tmp_path, **field)
    changed = {"format": format_, "id": "header:ce_id"}
    loaded = loader(minimal(model={"op_domains": DOMAINS}, input=changed, batching={"max_events": 8}))(read(folder))
    decoded = loaded.decoder.decode([write(text) for text in ("Good", "such a bad BAD day", "\u00e9")])
    scores = loaded.score(decoded.tensors)
    np.testing.assert_allclose([float(score) for score in scores.encoded()], [0.880797, 0.017986, 0.5], atol=1e-5)


def test_push_runs_its_golden_examples_and_notes_its_domain(tmp_path: Path) -> None:
    ready = prepare(classifier(tmp_path), op_domains=DOMAINS)
    assert ready.onnxruntime_version
    assert "ai.onnx.contrib=1" in ready.annotations[runtime_requirements.OPSET]


def test_a_domain_that_is_not_allowed_is_refused_with_the_library(tmp_path: Path) -> None:
    message = "uses the operator 'StringLower' of domain 'ai.onnx.contrib', which is not allowed"
    with pytest.raises(Refused, match=message):
        prepare(classifier(tmp_path))
    with pytest.raises(ModelRefused, match=message):
        select.backend_for(ModelSettings(source="oci:.")).open(read(tmp_path / "words"))


def test_a_version_is_refused_if_the_library_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = classifier(tmp_path)
    monkeypatch.setitem(sys.modules, "onnxruntime_extensions", None)
    for refuse in (
        lambda: prepare(folder, op_domains=DOMAINS),
        lambda: select.backend_for(ModelSettings(source="oci:.", op_domains=DOMAINS)).open(read(folder)),
    ):
        with pytest.raises((Refused, ModelRefused)) as refused:
            refuse()
        assert str(refused.value) == f"{MISSING}{install_command('extensions')}"


def test_the_library_is_loaded_only_for_models_that_need_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime_extensions", None)
    folder = models.linear_package(tmp_path / "linear", 2.0)
    assert prepare(folder, op_domains=DOMAINS).onnxruntime_version
    model = select.backend_for(ModelSettings(source="oci:.", op_domains=DOMAINS)).open(read(folder))
    decoder = decoder_factory.create_decoder(settings_of("json"), model.signature())
    assert model.run(decoder.decode([b'{"a": 1, "b": 2}']).tensors)["y"].tolist() == [[6.0]]
