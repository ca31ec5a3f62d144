"""Folders of Hugging Face become packages that take texts. A part that cannot be fused is refused with its name."""

import json
import shutil
from pathlib import Path
from typing import Any

import onnx
import pytest

from model_registry.errors import Refused
from model_registry.onnx_tools import hugging_face_folder, import_hugging_face
from tests.support import hugging_face
from tests.unit.model_registry.conftest import answer, run

TEXTS = ["Hello, World!", "", "naïve 日本 [MASK]", "word " * 100]


def test_an_embedding_becomes_a_version_whose_score_is_a_vector(folder: Path) -> None:
    trained = hugging_face.folder(folder / "minilm")
    events = [{"id": number, "text": text} for number, text in enumerate(TEXTS)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    drafted = answer("init", "minilm", "--example", "texts.jsonl")
    assert "the fused tokenizer gives the token ids of tokenizer.json to 10 texts" in drafted["notes"]
    assert "output 'embedding': the mean of last_hidden_state, scaled to length 1" in drafted["notes"]
    package = folder / "minilm-1.0.0"
    assert json.loads((package / "signature.json").read_text()) == {
        "inputs": [{"tensor": "text", "dtype": "string", "fields": ["text"]}],
        "output": {"tensor": "embedding"},
    }
    golden = [json.loads(line) for line in (package / "golden.jsonl").read_text().splitlines()]
    assert len(golden) == len(TEXTS)
    for line, text in zip(golden, TEXTS, strict=True):
        assert line["score"] == pytest.approx(hugging_face.embedding(trained, text), abs=1e-5)
    (package / "README.md").write_text("# MiniLM\n")
    run(*drafted["next"][0].split()[1:])
    assert "ai.onnx.contrib" in drafted["next"][0]
    assert answer("inspect", "oci:./registry/minilm:1.0.0")["outputs"][0]["content"] == "the whole row of embedding"


def test_a_classifier_gives_the_probabilities_of_its_labels(folder: Path) -> None:
    trained = hugging_face.folder(folder / "reviews", classifier=True, subfolder="onnx")
    drafted = answer("init", "reviews")
    signature = json.loads((folder / "reviews-1.0.0" / "signature.json").read_text())
    assert signature["output"] == {"tensor": "probabilities", "top": 3}
    assert signature["labels"] == list(hugging_face.LABELS)
    assert drafted["gaps"] == [gap for gap in drafted["gaps"] if gap.startswith("README.md")]
    for line in map(json.loads, (folder / "reviews-1.0.0" / "golden.jsonl").read_text().splitlines()):
        scores = {entry["label"]: entry["score"] for entry in line["score"]}
        assert scores == pytest.approx(hugging_face.probabilities(trained, line["event"]["text"]), abs=1e-5)


def test_the_pooling_is_that_of_the_folder(tmp_path: Path) -> None:
    trained = hugging_face.folder(tmp_path / "m", pooling="max", opset=18)
    converted = import_hugging_face.convert(tmp_path / "m", scratch(tmp_path))
    import onnxruntime as ort
    from onnxruntime_extensions import get_library_path

    options = ort.SessionOptions()
    options.register_custom_ops_library(get_library_path())
    session = ort.InferenceSession(str(converted.model), options)
    (vectors,) = session.run(None, {"text": [[text] for text in TEXTS]})
    for vector, text in zip(vectors.tolist(), TEXTS, strict=True):
        assert vector == pytest.approx(hugging_face.embedding(trained, text, "max"), abs=1e-5)


def test_links_to_files_outside_the_folder_are_refused_with_the_command_that_copies_them(tmp_path: Path) -> None:
    hugging_face.folder(tmp_path / "blobs")
    snapshot = tmp_path / "snapshots" / "0f3c"
    snapshot.mkdir(parents=True)
    for file in (tmp_path / "blobs").iterdir():
        (snapshot / file.name).symlink_to(Path("..", "..", "blobs", file.name))
    with pytest.raises(Refused, match="is a link to a file outside the folder") as raised:
        import_hugging_face.convert(snapshot, scratch(tmp_path))
    assert f"cp -rL {snapshot} NEW" in (raised.value.hint or "")
    copied = Path(shutil.copytree(snapshot, tmp_path / "copied"))
    assert import_hugging_face.convert(copied, tmp_path / "scratch").model.is_file()


def scratch(path: Path) -> Path:
    (path / "scratch").mkdir()
    return path / "scratch"


def change(path: Path, name: str, **parts: Any) -> None:
    document = json.loads((path / name).read_text())
    (path / name).write_text(json.dumps(document | parts))


TOKENIZERS: dict[str, dict[str, Any]] = {
    "model BPE": {"model": {"type": "BPE", "vocab": {}, "merges": []}},
    "model Unigram": {"model": {"type": "Unigram", "vocab": []}},
    "normalizer NFC": {"normalizer": {"type": "NFC"}},
    "normalizer none": {"normalizer": None},
    "pre_tokenizer ByteLevel": {"pre_tokenizer": {"type": "ByteLevel"}},
    "post_processor RobertaProcessing": {"post_processor": {"type": "RobertaProcessing"}},
    "post_processor TemplateProcessing without": {"post_processor": {"type": "TemplateProcessing", "single": []}},
    "added token '<x>' lstrip": {"added_tokens": [{"id": 5, "content": "<x>", "lstrip": True}]},
}


@pytest.mark.parametrize("named", TOKENIZERS)
def test_a_tokenizer_that_cannot_be_fused_is_refused_by_name(tmp_path: Path, named: str) -> None:
    hugging_face.folder(tmp_path / "m")
    change(tmp_path / "m", "tokenizer.json", **TOKENIZERS[named])
    with pytest.raises(Refused, match=f"tokenizer.json has the {named}") as caught:
        hugging_face_folder.read(tmp_path / "m")
    assert "BERT family" in caught.value.hint


@pytest.mark.parametrize(
    "change_of",
    [
        {"post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 1]}},
        {"post_processor": {"type": "BertProcessing", "cls": [{}, 1], "sep": ["[SEP]", 1]}},
        {"post_processor": {"type": "TemplateProcessing", "single": [1, 2, 3]}},
        {"added_tokens": 5},
    ],
)
def test_a_malformed_tokenizer_is_refused(tmp_path: Path, change_of: dict[str, Any]) -> None:
    hugging_face.folder(tmp_path / "m")
    change(tmp_path / "m", "tokenizer.json", **change_of)
    with pytest.raises(Refused, match=r"tokenizer\.json is malformed"):
        hugging_face_folder.read(tmp_path / "m")


def test_modules_that_are_no_array_are_refused(tmp_path: Path) -> None:
    hugging_face.folder(tmp_path / "m")
    (tmp_path / "m" / "modules.json").write_text("7")
    with pytest.raises(Refused, match=r"modules\.json is not a JSON array"):
        hugging_face_folder.read(tmp_path / "m")


def test_a_pooling_or_module_that_cannot_be_fused_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "m"
    hugging_face.folder(path)
    change(path, "1_Pooling/config.json", pooling_mode_weightedmean_tokens=True)
    with pytest.raises(Refused, match="states the pooling mean, pooling_mode_weightedmean_tokens"):
        hugging_face_folder.read(path)
    (path / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense"}]')
    with pytest.raises(Refused, match=r"has the module Dense, which cannot be fused"):
        hugging_face_folder.read(path)
    (path / "model.onnx").unlink()
    with pytest.raises(Refused, match=r"has neither model.onnx nor onnx/model.onnx"):
        hugging_face_folder.read(path)


def test_a_model_that_the_tokenizer_cannot_feed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m"
    trained = hugging_face.folder(path)
    hugging_face.write_model(path / "model.onnx", trained.get_vocab_size(), extra=("position_ids",))
    saved = hugging_face_folder.read(path)
    with pytest.raises(Refused, match="has the input 'position_ids', for which the tokenizer has no values"):
        import_hugging_face.check(saved, onnx.load(str(path / "model.onnx")))
    hugging_face.write_model(path / "model.onnx", trained.get_vocab_size(), opset=12)
    with pytest.raises(Refused, match="has opset 12, but the tokenizer needs opset 13 or newer"):
        import_hugging_face.check(saved, onnx.load(str(path / "model.onnx")))


def test_the_smallest_length_of_the_files_cuts_texts_off(tmp_path: Path) -> None:
    path = tmp_path / "m"
    hugging_face.folder(path)
    (path / "tokenizer_config.json").write_text('{"model_max_length": 1e30}')
    assert hugging_face_folder.read(path).tokenizer.max_length == hugging_face.MAX_LENGTH
    (path / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    assert hugging_face_folder.read(path).tokenizer.max_length == 16
    (path / "tokenizer_config.json").unlink()
    change(path, "tokenizer.json", truncation={"max_length": 9})
    assert hugging_face_folder.read(path).tokenizer.max_length == 9


def test_a_folder_of_another_tool_is_refused(folder: Path) -> None:
    (folder / "other").mkdir()
    assert "is a folder without MLmodel, and without config.json and" in run("init", "other", code=3).stderr
