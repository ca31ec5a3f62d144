"""The token ids of the fused tokenizer equal those of the library `tokenizers`: alone, in a batch, and truncated."""

from collections.abc import Callable

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from onnxruntime_extensions import get_library_path
from tokenizers import Tokenizer

from model_registry.onnx_tools import word_piece_graph
from model_registry.onnx_tools.hugging_face_folder import WordPiece
from tests.support import hugging_face

MAX_LENGTH = 32
TEXTS = [
    "hello world",
    "Hello, World! don't stop",
    "",
    " ",
    "naïve café résumé",
    "日本語のテキスト",
    "mixed 日本 text",
    "emoji \U0001f600 here",
    "\t tabs\nnewlines \r\n",
    "a" * 150,
    "ÀÉÎ Ünïcode \ufb01 ligature",
    "x\u0000y \u0002 \u0003",
    "zero\u200bwidth",
    "[CLS] special [SEP] tokens [MASK] foo[MASK]bar [UNK]",
    "İstanbul",
    "Ω≈ç√∫ 3.14 $5 = 7",
    "e\u0301 combining",
    "한국어 텍스트",
    "\u0391\u03a3 \u03a3 final sigma",
    "hello " * 60,
    "snake_case foo-bar a/b",
    "¿qué? ¡sí!",
    "\u3000ideographic space",
    "non\u00a0breaking soft\u00adhyphen",
    "\ufdfa \U00020000 \U0001d41b \u210c",
    "a\u2028b \ue000 \uffff",
    "\u1e9e ß",
]


def fused(trained: Tokenizer) -> Callable[[list[str]], list[list[list[int]]]]:
    """Return a function from texts to the outputs of the graph: token ids, masks and token types."""
    vocabulary = trained.get_vocab()
    frame = (vocabulary["[CLS]"], vocabulary["[SEP]"], vocabulary["[PAD]"])
    stated = WordPiece(vocabulary, tuple(hugging_face.SPECIAL), "[UNK]", "##", 100, *frame, MAX_LENGTH)
    builder = word_piece_graph.GraphBuilder()
    outputs = word_piece_graph.add_tokenizer(builder, stated, word_piece_graph.character_table(trained), "text")
    texts = helper.make_tensor_value_info("text", TensorProto.STRING, ["N", 1])
    declared = [helper.make_tensor_value_info(name, TensorProto.INT64, ["N", "S"]) for name in outputs]
    graph = helper.make_graph(builder.nodes, "tokenizer", [texts], declared, builder.constants)
    versions = {"": 13, "ai.onnx.ml": 2, "com.microsoft": 1, "ai.onnx.contrib": 1}
    opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    options = ort.SessionOptions()
    options.register_custom_ops_library(get_library_path())
    data = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return lambda rows: [
        output.tolist() for output in session.run(list(outputs), {"text": np.array(rows, object).reshape(-1, 1)})
    ]


@pytest.mark.parametrize("lower", [True, False], ids=["uncased", "cased"])
def test_the_token_ids_equal_those_of_tokenizers(lower: bool) -> None:
    trained = hugging_face.tokenizer(lower=lower)
    run = fused(trained)
    trained.enable_truncation(MAX_LENGTH)
    for text in TEXTS:
        ids, _, types = run([text])
        assert ids == [trained.encode(text).ids], text
        assert types == [[0] * len(ids[0])]
    trained.enable_padding(pad_id=trained.token_to_id("[PAD]"), pad_token="[PAD]")
    encoded = trained.encode_batch(TEXTS)
    ids, masks, _ = run(TEXTS)
    assert ids == [entry.ids for entry in encoded]
    assert masks == [entry.attention_mask for entry in encoded]
    assert max(map(len, ids)) == MAX_LENGTH
