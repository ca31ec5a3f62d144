"""Small folders of Hugging Face: a trained WordPiece tokenizer and an ONNX export that looks up a vector for each token."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

WIDTH, MAX_LENGTH = 8, 32
LABELS = ("negative", "neutral", "positive")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CORPUS = [
    "hello world naive cafe resume text special tokens istanbul final sigma snake case foo bar stop don't zero width mixed",
    "emoji here tabs newlines 3.14 5 日 本 語 の e a b c d e f g ß é è ï ü 한국어 ᄒ ᅡ ᆫ",
    "Hello World ÀÉÎ",
]


def tokenizer(*, lower: bool = True) -> Tokenizer:
    """Train a tokenizer of the BERT family."""
    trained = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    trained.normalizer = normalizers.BertNormalizer(lowercase=lower)
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trained.train_from_iterator(
        CORPUS * 3, trainers.WordPieceTrainer(vocab_size=400, special_tokens=SPECIAL, show_progress=False)
    )
    vocabulary = trained.get_vocab()
    trained.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    return trained


def vectors(size: int) -> NDArray[np.float32]:
    """Return the vectors of `size` tokens."""
    return np.random.default_rng(1).normal(size=(size, WIDTH)).astype(np.float32)


def folder(path: Path, *, classifier: bool = False, pooling: str = "mean", opset: int = 14, subfolder: str = "") -> Tokenizer:
    """Write a folder in the layout of transformers and sentence-transformers; return its tokenizer."""
    (path / "1_Pooling").mkdir(parents=True)
    (path / subfolder).mkdir(exist_ok=True)
    trained = tokenizer()
    trained.save(str(path / "tokenizer.json"))
    write_model(path / subfolder / "model.onnx", trained.get_vocab_size(), classifier=classifier, opset=opset)
    config: dict[str, Any] = {"max_position_embeddings": MAX_LENGTH}
    config |= {"id2label": {str(number): label for number, label in enumerate(LABELS)}} if classifier else {}
    (path / "config.json").write_text(json.dumps(config))
    if not classifier:
        modes = {f"pooling_mode_{name}": name.startswith(pooling) for name in ("cls_token", "mean_tokens", "max_tokens")}
        (path / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": WIDTH, **modes}))
        modules = [{"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling", "Normalize")]
        (path / "modules.json").write_text(json.dumps(modules))
    return trained


def write_model(path: Path, size: int, *, classifier: bool = False, opset: int = 14, extra: tuple[str, ...] = ()) -> None:
    """Write a model with the inputs of BERT, and `extra` ones. A classifier sums the vectors' first numbers."""
    nodes = [helper.make_node("Gather", ["vectors", "input_ids"], ["last_hidden_state"], axis=0)]
    constants = [numpy_helper.from_array(vectors(size), "vectors")]
    shape: list[Any] = ["batch_size", "sequence_length", WIDTH]
    outputs = [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, shape)]
    if classifier:
        constants += [numpy_helper.from_array(np.array(value), name) for name, value in (("last", [-1]), ("one", [1]))]
        constants.append(numpy_helper.from_array(np.eye(WIDTH, len(LABELS), dtype=np.float32), "first"))
        nodes += [
            helper.make_node("Cast", ["attention_mask"], ["present"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["present", "last"], ["column"]),
            helper.make_node("Mul", ["last_hidden_state", "column"], ["masked"]),
            helper.make_node("ReduceSum", ["masked", "one"], ["sum"], keepdims=0),
            helper.make_node("MatMul", ["sum", "first"], ["logits"]),
        ]
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch_size", len(LABELS)])]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch_size", "sequence_length"])
        for name in ("input_ids", "attention_mask", "token_type_ids", *extra)
    ]
    graph = helper.make_graph(nodes, "bert", inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), str(path))


def embedding(trained: Tokenizer, text: str, pooling: str = "mean") -> list[float]:
    """Return the vector of length 1 that the folder's model gives to a text, computed with `tokenizers` and numpy."""
    trained.enable_truncation(MAX_LENGTH)
    rows = vectors(trained.get_vocab_size())[trained.encode(text).ids]
    vector = {"mean": rows.mean(axis=0), "cls": rows[0], "max": rows.max(axis=0)}[pooling]
    listed: list[float] = (vector / np.linalg.norm(vector)).tolist()
    return listed


def probabilities(trained: Tokenizer, text: str) -> dict[str, float]:
    """Return the probabilities that a classifier's folder gives to a text, by label."""
    trained.enable_truncation(MAX_LENGTH)
    logits = vectors(trained.get_vocab_size())[trained.encode(text).ids].sum(axis=0)[: len(LABELS)].astype(float)
    powers = np.exp(logits - logits.max())
    return dict(zip(LABELS, (powers / powers.sum()).tolist(), strict=True))
