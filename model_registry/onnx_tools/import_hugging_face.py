"""Converts a Hugging Face model folder: adds the tokenizer, the pooling and the normalization to the graph of its ONNX export.

The result takes the text of an event, and gives the embedding of the text or the probabilities of the classes. The module needs
the libraries `onnx`, `tokenizers` and onnxruntime-extensions; a scorer needs onnxruntime-extensions too.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from model_registry import atomic_files
from model_registry.errors import Refused
from model_registry.extras import install_command
from model_registry.onnx_tools import hugging_face_folder, imported_model, onnx_reader, safety, word_piece_graph
from model_registry.onnx_tools.declared_tensors import ModelTensor
from model_registry.onnx_tools.hugging_face_folder import HuggingFaceModel
from model_registry.onnx_tools.imported_model import ImportedModel
from model_registry.onnx_tools.word_piece_graph import CONTRIB, MICROSOFT, PREFIX, GraphBuilder
from model_registry.sandbox import run_apart

TEXT = "text"
EMBEDDING = "embedding"
PROBABILITIES = "probabilities"
OLDEST_OPSET = 13  # the oldest opset whose ReduceSum reads its axes from an input, as the nodes of the tokenizer do
REDUCE_MAX_AXES_OPSET = 18  # the opset in which ReduceMax reads its axes from an input
FEEDS = ("input_ids", "attention_mask", "token_type_ids")
FLOAT = 1  # TensorProto.FLOAT
PROBES = (
    "Hello, World! It's 3.14 $5.",
    "",
    " \t\r\n\u3000",
    "naïve café, RÉSUMÉ, İstanbul, ẞ ß ΑΣ",
    "e\u0301 zero\u200bwidth soft\u00adhyphen x\u0000y a\u2028b",
    "日本語のテキスト 한국어 русский العربية हिन्दी",
    "[CLS] [SEP] [MASK] [PAD] [UNK] foo[MASK]bar",
    "emoji 😀 \U0001d41b\U0001d428 ﬁ ﷺ \u210c \U00020000",
    "a" * 150,
    "word " * 1000,
)
"""Texts whose token ids are compared with those of the library `tokenizers`."""


def convert(folder: Path, scratch: Path) -> ImportedModel:
    """Convert a Hugging Face model folder into one ONNX model that takes texts.

    Args:
        folder: The folder with config.json, tokenizer.json and model.onnx or onnx/model.onnx.
        scratch: A folder for the fused model, whose graph has the tokenizer, the pooling and the normalization.

    Raises:
        Refused: A part of the model is not supported, a library is missing, or the fused tokenizer gives other token ids than
            the library `tokenizers`.
    """
    saved = hugging_face_folder.read(folder)
    safety.check(saved.model, None, (MICROSOFT,))
    notes = run_apart(_fuse, saved, scratch / "model.onnx")
    _add_weights(saved.model, scratch)
    classifies = bool(_logits(onnx_reader.read(saved.model).outputs)) and len(saved.labels) > 1
    labels = imported_model.write_labels(scratch, saved.labels) if classifies else None
    example = imported_model.write_examples(scratch, [{TEXT: text} for text in PROBES[:4] if text.strip()])
    return ImportedModel(scratch / "model.onnx", example, labels, domains=(CONTRIB,), notes=notes)


def _add_weights(model: Path, scratch: Path) -> None:
    """Put the external weights of `model` into the folder `scratch`, beside the fused model."""
    with atomic_files.report_os_errors(f"the folder {scratch}"):
        for location in {weights.location for weights in onnx_reader.read(model).external}:
            target = scratch / location
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(model.parent / location, target)
            except OSError:  # another file system
                shutil.copyfile(model.parent / location, target)


def _fuse(saved: HuggingFaceModel, target: Path) -> list[str]:
    """Write the ONNX model with the tokenizer fused into its graph to `target`, and return notes about it."""
    try:
        import onnx
        import tokenizers
    except ImportError as error:
        hint = f"pip install onnx tokenizers, and {install_command('extensions')}"
        fault = f"{saved.folder} cannot be converted, because a library is not installed: {error}"
        raise Refused(fault, hint) from None
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(saved.folder / hugging_face_folder.TOKENIZER))
    except Exception as error:  # noqa: BLE001 - the library raises plain exceptions
        fault = f"{saved.folder / hugging_face_folder.TOKENIZER} cannot be loaded: {str(error)[:200]}"
        raise Refused(fault, "save the tokenizer again") from None
    builder = GraphBuilder()
    table = word_piece_graph.character_table(tokenizer)
    tokens = word_piece_graph.add_tokenizer(builder, saved.tokenizer, table, TEXT)
    notes = [_compare_tokens(saved, tokenizer, builder, tokens[0])]
    model = onnx.load(str(saved.model), load_external_data=False)
    check(saved, model)
    for name, source in zip(FEEDS, tokens, strict=True):
        declared = next((tensor for tensor in model.graph.input if tensor.name == name), None)
        if declared is not None:
            builder.add("Cast", source, name=name, to=declared.type.tensor_type.elem_type)
    count = len(builder.nodes)
    note = _add_head(saved, model, builder, tokens[1])
    before, after = builder.nodes[:count], builder.nodes[count:]
    nodes = [*before, *model.graph.node, *after]
    _replace(model, nodes, builder.constants)
    target.write_bytes(model.SerializeToString())
    return [*notes, note, f"texts are cut off after {saved.tokenizer.max_length} tokens"]


def check(saved: HuggingFaceModel, model: Any) -> None:
    """Raise Refused if a tokenizer cannot be added to the model's graph.

    Reasons are an input that the tokenizer does not feed, an opset that is too old, and a tokenizer already in the graph.
    """
    constants = {constant.name for constant in model.graph.initializer}
    inputs = [tensor.name for tensor in model.graph.input if tensor.name not in constants]
    if unknown := sorted(set(inputs) - set(FEEDS)):
        hint = f"export it with the inputs {', '.join(FEEDS)} only"
        raise Refused(f"{saved.model} has the input {unknown[0]!r:.50}, for which the tokenizer has no values", hint)
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    if opset < OLDEST_OPSET:
        raise Refused(
            f"{saved.model} has opset {opset}, but the tokenizer needs opset {OLDEST_OPSET} or newer",
            "export it with a newer opset",
        )
    if any(name.startswith(PREFIX) for node in model.graph.node for name in node.output):
        raise Refused(f"{saved.model} has a fused tokenizer already", "name the ONNX file itself as MODEL")


def _replace(model: Any, nodes: Sequence[Any], constants: Sequence[Any]) -> None:
    """Give a model's graph these nodes, one input for the text, these additional constants, and the operator domains."""
    from onnx import TensorProto, helper

    nodes = list(nodes)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(constants)
    del model.graph.input[:]
    model.graph.input.append(helper.make_tensor_value_info(TEXT, TensorProto.STRING, ["batch_size", 1]))
    imported = {entry.domain: entry for entry in model.opset_import}
    for domain, version in ((CONTRIB, 1), (MICROSOFT, 1), ("ai.onnx.ml", 2)):
        if domain not in imported:
            model.opset_import.append(helper.make_opsetid(domain, version))
        elif imported[domain].version < version:
            imported[domain].version = version


def _logits(outputs: Sequence[ModelTensor]) -> ModelTensor | None:
    return next((output for output in outputs if output.name == "logits" and len(output.shape) == 2), None)


def _add_head(saved: HuggingFaceModel, model: Any, builder: GraphBuilder, mask: str) -> str:
    """Add the nodes that turn the model's output into the score, declare the score as the only output, and return a note."""
    from onnx import TensorProto, helper

    outputs = onnx_reader.read(saved.model).outputs
    logits = _logits(outputs)
    if logits is not None:
        numbers = builder.add("Cast", logits.name, to=FLOAT)
        activation = _activation(saved)
        if activation == "Softmax":
            builder.add("Softmax", numbers, name=PROBABILITIES, axis=1)
        else:
            builder.add(activation, numbers, name=PROBABILITIES)
        width = len(saved.labels) or logits.shape[1]
        declared = helper.make_tensor_value_info(PROBABILITIES, TensorProto.FLOAT, ["batch_size", width])
        note = f"output {PROBABILITIES!r}: {activation} of the logits" if activation != "Identity" else "output: the logits"
    else:
        vector, width, note = _add_vector(saved, model, outputs, builder, mask)
        if saved.normalized:
            builder.add("LpNormalization", vector, name=EMBEDDING, axis=1, p=2)
        else:
            builder.add("Identity", vector, name=EMBEDDING)
        declared = helper.make_tensor_value_info(EMBEDDING, TensorProto.FLOAT, ["batch_size", width])
        note += ", scaled to length 1" if saved.normalized else ""
    del model.graph.output[:]
    model.graph.output.append(declared)
    return note


def _activation(saved: HuggingFaceModel) -> str:
    """Return the ONNX operator that turns logits into scores, as the pipelines of transformers choose it."""
    if saved.problem == "regression":
        return "Identity"
    return "Sigmoid" if saved.problem == "multi_label_classification" or len(saved.labels) == 1 else "Softmax"


def _add_vector(
    saved: HuggingFaceModel, model: Any, outputs: Sequence[ModelTensor], builder: GraphBuilder, mask: str
) -> tuple[str, int | str | None, str]:
    """Add the nodes of the pooling. Return the name of the float32 vector (B, H), its width H, and a note."""
    pooled = next((output for output in outputs if output.name == "sentence_embedding" and len(output.shape) == 2), None)
    if pooled is not None:
        return builder.add("Cast", pooled.name, to=FLOAT), pooled.shape[1], "output 'embedding': the model's sentence_embedding"
    hidden = next((output for output in outputs if len(output.shape) == 3 and output.name != "logits"), None)
    if hidden is None:
        listed = ", ".join(f"{output.name} {list(output.shape)}" for output in outputs)
        hint = "export it for feature-extraction or text-classification"
        raise Refused(f"{saved.model} gives neither logits of classes nor vectors of tokens, but {listed:.200}", hint)
    if not saved.pooling:
        hint = 'write 1_Pooling/config.json with the pooling of its training, such as {"pooling_mode_mean_tokens": true}'
        raise Refused(f"{saved.folder} does not state how the vectors of the tokens become one", hint)
    numbers = builder.add("Cast", hidden.name, to=FLOAT)
    note = f"output 'embedding': the {saved.pooling} of {hidden.name}"
    if saved.pooling == "cls":
        return builder.add("Gather", numbers, builder.constant(0), axis=1), hidden.shape[2], note
    present = builder.add("Unsqueeze", builder.add("Cast", mask, to=FLOAT), builder.constant([-1]))
    if saved.pooling == "mean":
        total = builder.add("ReduceSum", builder.add("Mul", numbers, present), builder.constant([1]), keepdims=0)
        count = builder.add("ReduceSum", present, builder.constant([1]), keepdims=0)
        return builder.add("Div", total, count), hidden.shape[2], note
    lowest = builder.constant(np.finfo(np.float32).min, np.float32)
    values = builder.add("Where", builder.add("Cast", present, to=9), numbers, lowest)
    opset = max(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if opset >= REDUCE_MAX_AXES_OPSET:
        return builder.add("ReduceMax", values, builder.constant([1]), keepdims=0), hidden.shape[2], note
    return builder.add("ReduceMax", values, axes=[1], keepdims=0), hidden.shape[2], note


def _compare_tokens(saved: HuggingFaceModel, tokenizer: Any, builder: GraphBuilder, ids: str) -> str:
    """Compare the token ids of the graph with those of `tokenizers` for the texts in PROBES: all in one batch, and each alone.

    Raises Refused if they differ, or if the graph cannot be run.
    """
    actual = _token_ids(builder, ids)
    tokenizer.enable_truncation(saved.tokenizer.max_length)
    tokenizer.no_padding()
    expected = [list(tokenizer.encode(text).ids) for text in PROBES]
    batch = actual(PROBES)
    for number, (text, wanted) in enumerate(zip(PROBES, expected, strict=True)):
        if batch[number][: len(wanted)] != wanted or actual([text])[0] != wanted:
            raise Refused(
                f"the fused tokenizer gives other token ids than tokenizer.json for the text {text!r:.80}",
                "feed input_ids from the producer, with the ONNX file as MODEL",
            )
    return f"the fused tokenizer gives the token ids of tokenizer.json to {len(PROBES)} texts"


def _token_ids(builder: GraphBuilder, ids: str) -> Any:
    """Return a function from texts to their token ids, which runs the tokenizer's part of the graph alone."""
    from onnx import TensorProto, helper

    try:
        import onnxruntime as ort
        from onnxruntime_extensions import get_library_path
    except ImportError as error:
        fault = f"the tokenizer needs a library that is missing: {error}"
        raise Refused(fault, f"{install_command('cpu', 'extensions')}, also in the scorers' environments") from None
    inputs = [helper.make_tensor_value_info(TEXT, TensorProto.STRING, ["batch_size", 1])]
    outputs = [helper.make_tensor_value_info(ids, TensorProto.INT64, ["batch_size", "length"])]
    graph = helper.make_graph(builder.nodes, "tokenizer", inputs, outputs, builder.constants)
    versions = {"": OLDEST_OPSET, CONTRIB: 1, MICROSOFT: 1, "ai.onnx.ml": 2}
    opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    options = ort.SessionOptions()
    options.register_custom_ops_library(get_library_path())
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's errors have no common class
        raise Refused(f"the fused tokenizer does not load: {str(error)[:200]}", "update onnxruntime-extensions") from None

    def run(texts: Sequence[str]) -> list[list[int]]:
        (rows,) = session.run([ids], {TEXT: np.array([[text] for text in texts], object)})
        listed: list[list[int]] = rows.tolist()
        return listed

    return run
