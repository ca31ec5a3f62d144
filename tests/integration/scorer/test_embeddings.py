"""A folder of Hugging Face, from `model-registry init` to scores that are vectors, on the real broker."""

import pytest

from tests.integration.scorer.rig import MakeRig, until
from tests.support import hugging_face

TEXTS = ["Hello, World!", "", "naïve 日本 café", "한국어 [MASK]", "word " * 100]


def test_the_embedding_of_a_text_is_its_score(make_rig: MakeRig) -> None:
    rig = make_rig(model={"op_domains": ["com.microsoft", "ai.onnx.contrib"]})
    trained = hugging_face.folder(rig.folder / "minilm")
    rig.run("model-registry", "init", "./minilm", "--into", "./embeddings")
    (rig.folder / "embeddings" / "README.md").write_text("# Embeddings\n")
    rig.push(rig.folder / "embeddings", "1.0.0", "--op-domain", "ai.onnx.contrib")
    rig.promote("1.0.0")
    rig.create()
    scorer = rig.start().ready()
    assert rig.emit({"id": f"e{n}", "key": "k", "text": TEXTS[n % len(TEXTS)]} for n in range(50)) == 50
    until(lambda: rig.answered() == 50, "all answers")
    scores = {record["id"]: record["score"] for record in rig.scores()}
    for number in range(50):
        expected = hugging_face.embedding(trained, TEXTS[number % len(TEXTS)])
        assert scores[f"e{number}"] == pytest.approx(expected, abs=1e-5)
    assert scorer.stop() == 0
    rig.assert_audited(events=50)
