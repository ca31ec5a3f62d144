"""Train a text classifier with torch as a recipe. The tokenizer is part of the ONNX graph: the model reads plain text.

A text is split at spaces; the embeddings of its words are averaged, and two layers give the probabilities of the classes.
"""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper
from pyarrow import parquet

trial = json.loads(Path("trial.json").read_text())
parameters = {"width": 16, "learning_rate": 0.01} | json.loads(Path("parameters.json").read_text())
(tensor,) = json.loads(Path("signature.json").read_text())["inputs"]  # one tensor with one text
classes = len(trial["target"]["classes"])
torch.manual_seed(trial["seed"])
torch.use_deterministic_algorithms(True)
torch.set_num_threads(1)

training = parquet.read_table("rows/training.parquet").to_pydict()
texts, labels = training[tensor["fields"][0]], torch.tensor(training["label"], dtype=torch.int64)
counts = Counter(word for text in texts for word in text.split())
words = ["", *sorted(word for word, count in counts.items() if count >= 3)]  # 0: other words
index = {word: at for at, word in enumerate(words)}


class Classifier(torch.nn.Module):
    """Averages the embeddings of the words of each text, and applies two layers to the mean."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(len(words), width, mode="mean")
        self.hidden = torch.nn.Linear(width, width)
        self.out = torch.nn.Linear(width, classes)

    def forward(self, some: list[str]) -> torch.Tensor:
        tokens = [[index.get(word, 0) for word in text.split()] for text in some]  # their lengths differ
        starts = torch.tensor(np.cumsum([0, *map(len, tokens[:-1])]))
        mean = self.bag(torch.tensor([at for text in tokens for at in text], dtype=torch.int64), starts)
        return self.out(torch.relu(self.hidden(mean)))


model = Classifier(parameters["width"])
optimizer = torch.optim.Adam(model.parameters(), lr=parameters["learning_rate"])
checkpoint, done = Path("checkpoint/state.pt"), 0
if checkpoint.exists():
    state = torch.load(checkpoint, weights_only=True)
    done = state["epoch"]
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
for epoch in range(done + 1, trial["budget"] + 1):
    order = np.random.default_rng([trial["seed"], epoch]).permutation(len(texts))
    for batch in np.array_split(order, max(1, len(order) // 64)):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model([texts[at] for at in batch]), labels[batch])
        loss.backward()
        optimizer.step()
    state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, checkpoint.with_suffix(".part"))
    checkpoint.with_suffix(".part").replace(checkpoint)
    if not trial["final"]:
        validation = parquet.read_table("rows/validation.parquet").to_pydict()
        with torch.no_grad():
            answers = model(validation[tensor["fields"][0]]).double()
        value = torch.nn.functional.cross_entropy(answers, torch.tensor(validation["label"], dtype=torch.int64))
        with Path("metrics.jsonl").open("a") as metrics:
            metrics.write(json.dumps({"budget": epoch, "log_loss": value.item(), "loss": loss.item()}) + "\n")

if trial["final"]:
    weights = {name.replace(".", "_"): value.detach().numpy() for name, value in model.named_parameters()}
    constants = {"zero": np.array(0, np.int64), "one": np.array([1.0], np.float32), "last": np.array([-1], np.int64)}
    constants |= {"step": np.array(1, np.int64), "second": np.array([1], np.int64), "third": np.array([2], np.int64)}
    nodes = [
        helper.make_node("Reshape", [tensor["tensor"], "last"], ["flat"]),
        helper.make_node("StringSplit", ["flat"], ["tokens", "lengths"], delimiter=""),  # [B, most tokens], "" beyond a text
        helper.make_node("Unsqueeze", ["lengths", "second"], ["length"]),
        helper.make_node(
            "LabelEncoder",
            ["tokens"],
            ["indices"],
            domain="ai.onnx.ml",
            keys_strings=words[1:],
            values_int64s=list(range(1, len(words))),
            default_int64=0,
        ),
        helper.make_node("Gather", ["bag_weight", "indices"], ["vectors"]),
        helper.make_node("Shape", ["tokens"], ["most"], start=1),
        helper.make_node("Squeeze", ["most"], ["steps"]),
        helper.make_node("Range", ["zero", "steps", "step"], ["positions"]),
        helper.make_node("Less", ["positions", "length"], ["inside"]),
        helper.make_node("Cast", ["inside"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "third"], ["mask3"]),
        helper.make_node("Mul", ["vectors", "mask3"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "second"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["length"], ["count"], to=TensorProto.FLOAT),
        helper.make_node("Max", ["count", "one"], ["divisor"]),
        helper.make_node("Div", ["sum", "divisor"], ["mean"]),
        helper.make_node("Gemm", ["mean", "hidden_weight", "hidden_bias"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "out_weight", "out_bias"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "reviews",
        [helper.make_tensor_value_info(tensor["tensor"], TensorProto.STRING, ["N", 1])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", classes])],
        [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in (weights | constants).items()],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 4)]
    Path("model.onnx").write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
