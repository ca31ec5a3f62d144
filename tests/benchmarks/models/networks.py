"""The models, with random weights: shapes, names and operators as their exporters write them."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.support import models
from tests.support.graphs import Graph, residual
from tests.support.models import tensor

SIDE = 224
CLASSES = 1_000
WORDS = ("good", "bad", "film", "story", "the", "a", "was", "is", "very", "##ly", "##er", "plot", "cast", "slow", "fun", "long")
VOCABULARY = "\n".join(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS))
TOPICS = ("praise", "blame", "neither", "question")
FRAME, STATE = 512, 128
ANCHORS, KINDS, FEATURES = 20, ("car", "bicycle", "person", "dog", "bus", "tram", "cat", "horse"), 96
LETTERS = tuple("0123456789abcdefghijklmnopqrstuvwxyz-")
F = TensorProto.FLOAT


def image_classifier(path: Path, *, cast: bool) -> None:
    """`probabilities` (B, 1000) of `image` (B, 3, 224, 224) float32; with `cast` uint8, which the model casts and scales."""
    g, x = Graph(), "image"
    if cast:
        x = g("Mul", g("Cast", x, to=F), g.constant(1 / 255))
    g("Identity", residual(g, x), output="probabilities")
    image = tensor("image", TensorProto.UINT8 if cast else F, "batch", 3, SIDE, SIDE)
    g.save(path, [image], [tensor("probabilities", F, "batch", CLASSES)])


def text_classifier(path: Path) -> None:
    """`probabilities` (1, 4) of `text` [1]: BertTokenizer, embeddings, a mean, two layers. The tokenizer takes one text."""
    g = Graph()
    tokens = helper.make_node(
        "BertTokenizer", ["text"], ["ids", "types", "mask"], domain="ai.onnx.contrib", vocab_file=VOCABULARY, do_lower_case=1
    )
    g.nodes.append(tokens)
    embedded = g("Add", g("Gather", g.weight(len(WORDS) + 5, 64), "ids"), g("Gather", g.weight(2, 64), "types"))
    weights = g("Unsqueeze", g("Cast", "mask", to=F), g.constant([1], np.int64))
    mean = g("ReduceMean", g("Mul", embedded, weights), axes=[0], keepdims=1)
    hidden = g("Tanh", g.linear(mean, 64, 64))
    g("Softmax", g("Mul", g.linear(hidden, 64, len(TOPICS)), g.constant(8.0)), axis=-1, output="probabilities")
    graph = helper.make_graph(
        g.nodes, "network", [tensor("text", TensorProto.STRING, 1)], [tensor("probabilities", F, 1, len(TOPICS))], g.weights
    )
    domains = [*models.OPSET, helper.make_opsetid("ai.onnx.contrib", 1)]
    onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=8), str(path))


def voice_detector(path: Path) -> None:
    """`output` (B, 1) and `stateN` of `input` (B, 512), `state` (2, B, 128) and `sr` []: a layer and an LSTM, scaled by the
    rate."""
    g = Graph()
    rate = g("Div", g("Cast", "sr", to=F), g.constant(16_000.0))
    frame = g("Relu", g("Mul", g.linear("input", FRAME, STATE), rate))
    zero, one, two = (g.constant([at], np.int64) for at in range(3))
    hidden, cell = (g("Slice", "state", begin, end, zero) for begin, end in ((zero, one), (one, two)))
    weights = [g.constant(np.random.default_rng(at).normal(size=(1, 4 * STATE, STATE)) / STATE**0.5) for at in range(2)]
    g.nodes.append(
        helper.make_node(
            "LSTM", [g("Unsqueeze", frame, zero), *weights, "", "", hidden, cell], ["", "h", "cell"], hidden_size=STATE
        )
    )
    g("Sigmoid", g.linear(g("Squeeze", "h", zero), STATE, 1), output="output")
    g("Concat", "h", "cell", axis=0, output="stateN")
    state = [tensor(name, F, 2, "batch", STATE) for name in ("state", "stateN")]
    inputs = [tensor("input", F, "batch", FRAME), state[0], tensor("sr", TensorProto.INT64)]
    g.save(path, inputs, [tensor("output", F, "batch", 1), state[1]])


def lstm_cell(path: Path) -> None:
    """`next` (B, 1), `hn` and `cn` (B, 64) of `x` (B, 12), `h` and `c` (B, 64): a cell, written out."""
    g = Graph()
    gates = g("Add", g.linear("x", 12, 256), g.linear("h", 64, 256))
    i, f, o, u = (g("Slice", gates, *(g.constant([at], np.int64) for at in (64 * n, 64 * n + 64, 1))) for n in range(4))
    retained = g("Mul", g("Sigmoid", f), "c")
    cell = g("Add", retained, g("Mul", g("Sigmoid", i), g("Tanh", u)), output="cn")
    hidden = g("Mul", g("Sigmoid", o), g("Tanh", cell), output="hn")
    g.linear(hidden, 64, 1, output="next")
    rows = [tensor(name, F, "batch", width) for name, width in (("x", 12), ("h", 64), ("c", 64))]
    g.save(path, rows, [tensor("next", F, "batch", 1), *(tensor(name, F, "batch", 64) for name in ("hn", "cn"))])


def detector(path: Path) -> None:
    """`boxes` (B, 20, 4), `classes` (B, 8), `scores` (B, 20) and `count` (B,) int64 of `features` (B, 96)."""
    g = Graph()
    x = g("Relu", g.linear("features", FEATURES, 128))
    g("Reshape", g.linear(x, 128, ANCHORS * 4), g.constant([0, ANCHORS, 4], np.int64), output="boxes")
    g("Softmax", g.linear(x, 128, len(KINDS)), axis=-1, output="classes")
    g("Sigmoid", g.linear(x, 128, ANCHORS), output="scores")
    sure = g("Cast", g("Greater", "scores", g.constant(0.5)), to=TensorProto.INT64)
    g("ReduceSum", sure, g.constant([1], np.int64), keepdims=0, output="count")
    outputs: list[Any] = [
        ("boxes", F, ANCHORS, 4),
        ("classes", F, len(KINDS)),
        ("scores", F, ANCHORS),
        ("count", TensorProto.INT64),
    ]
    declared = [tensor(name, kind, "batch", *row) for name, kind, *row in outputs]
    g.save(path, [tensor("features", F, "batch", FEATURES)], declared)


def recogniser(path: Path) -> None:
    """`letters` (B, 37) of lines of text `x` (B, 1, 32, width): convolutions, the height pooled away, a letter at each
    place, and the maximum of each letter over all places."""
    g, x = Graph(), "x"
    for inputs, outputs, stride in ((1, 16, 2), (16, 32, 2), (32, 48, 2)):
        attributes: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [stride, stride], "pads": [1, 1, 1, 1]}
        x = g("Relu", g("Conv", x, g.weight(outputs, inputs, 3, 3), g.constant(np.zeros(outputs)), **attributes))
    places = g("Transpose", g("ReduceMean", x, axes=[2], keepdims=0), perm=[0, 2, 1])
    each = g("Softmax", g("Mul", g.linear(places, 48, len(LETTERS)), g.constant(4.0)), axis=-1)
    g("ReduceMax", each, axes=[1], keepdims=0, output="letters")
    g.save(path, [tensor("x", F, "batch", 1, 32, "width")], [tensor("letters", F, "batch", len(LETTERS))])
