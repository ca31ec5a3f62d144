"""Reads a Hugging Face model folder with an ONNX export: tokenizer, pooling and labels. The model itself is not opened.

Only tokenizers of the BERT family are supported: WordPiece with BertNormalizer and BertPreTokenizer. For other tokenizers,
onnxruntime-extensions has operators (GPT2Tokenizer, RobertaTokenizer, SentencepieceTokenizer, HfJsonTokenizer), but it is not
proven that they give the token ids of the library `tokenizers`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_registry.errors import Refused
from model_registry.onnx_tools import imported_model

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
MODELS = ("model.onnx", "onnx/model.onnx")
POOLINGS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
}
"""The supported poolings, and the keys with which sentence-transformers states them."""
MAX_LABELS = 100_000
UNLIMITED = 1_000_000  # tokenizer_config.json states 1e30 if the length is unlimited


@dataclass(frozen=True, slots=True)
class WordPiece:
    """A tokenizer of the BERT family.

    Attributes:
        vocabulary: The ids of the tokens, the added tokens included.
        added: The texts, such as [MASK], that become one token each wherever they occur in an event.
        unknown: The token for a word that cannot be split into tokens of the vocabulary.
        prefix: The prefix of a token that continues a word.
        most_characters: The largest length of a word in characters; a longer word is unknown.
        first: The id of the token before each text.
        last: The id of the token after each text.
        padding: The id of the token with which the shorter texts of a batch are padded.
        max_length: The largest number of tokens of a text, the first and the last included; further tokens are cut off.
    """

    vocabulary: Mapping[str, int]
    added: tuple[str, ...]
    unknown: str
    prefix: str
    most_characters: int
    first: int
    last: int
    padding: int
    max_length: int


@dataclass(frozen=True, slots=True)
class HuggingFaceModel:
    """The content of a Hugging Face model folder.

    Attributes:
        folder: The folder.
        model: The ONNX file.
        tokenizer: The tokenizer.
        pooling: How the vectors of the tokens become one vector, a key of POOLINGS; empty if the folder does not state it.
        normalized: Whether the vector is scaled to the length 1.
        labels: The names of the classes; empty if the model is no classifier.
        problem: The `problem_type` in config.json; empty if it is not stated.
    """

    folder: Path
    model: Path
    tokenizer: WordPiece
    pooling: str
    normalized: bool
    labels: tuple[str, ...]
    problem: str


def read(folder: Path) -> HuggingFaceModel:
    """Read a Hugging Face model folder.

    Raises:
        Refused: The folder has no ONNX file, a part of the model is not supported (the message names it), or a file is
            malformed.
        Unreachable: The folder cannot be read.
    """
    name = next((name for name in MODELS if (folder / name).is_file()), None)
    if name is None:
        hint = f"export it, for instance with: optimum-cli export onnx --model {folder} {folder}"
        raise Refused(f"{folder} has neither {' nor '.join(MODELS)}", hint)
    config = _object(folder, CONFIG)
    pooling, normalized = _pooling(folder)
    problem = config.get("problem_type")
    return HuggingFaceModel(
        folder,
        imported_model.member(folder, name),
        read_tokenizer(folder, _max_length(folder, config)),
        pooling,
        normalized,
        _labels(config),
        problem if isinstance(problem, str) else "",
    )


def read_tokenizer(folder: Path, max_length: int) -> WordPiece:
    """Read tokenizer.json. Raises Refused if it is malformed, or if one of its parts is not supported."""
    try:
        return _tokenizer(folder, _object(folder, TOKENIZER), max_length)
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # a part has another type than `tokenizers` writes
        fault = f"{folder / TOKENIZER} is malformed: {type(error).__name__}: {str(error)[:200]}"
        raise Refused(fault, "save the tokenizer again") from None


def _tokenizer(folder: Path, document: Mapping[str, Any], max_length: int) -> WordPiece:
    model = document.get("model")
    if not isinstance(model, dict):
        raise _unsupported(folder, "model", "none")
    _require(folder, "model", model, "WordPiece")
    _require(folder, "normalizer", document.get("normalizer"), "BertNormalizer")
    _require(folder, "pre_tokenizer", document.get("pre_tokenizer"), "BertPreTokenizer")
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or not all(isinstance(number, int) for number in vocabulary.values()):
        raise _unsupported(folder, "model", "WordPiece without a vocabulary")
    added = [entry for entry in document.get("added_tokens") or () if isinstance(entry, dict)]
    for entry in added:
        flags = [flag for flag in ("single_word", "lstrip", "rstrip", "normalized") if entry.get(flag)]
        if flags or not isinstance(entry.get("content"), str) or not isinstance(entry.get("id"), int):
            raise _unsupported(folder, f"added token {entry.get('content')!r:.50}", ", ".join(flags) or "malformed")
    ids = {**vocabulary, **{entry["content"]: entry["id"] for entry in added}}
    first, last = _frame(folder, document.get("post_processor"), ids)
    unknown = model.get("unk_token", "[UNK]")
    if unknown not in vocabulary:
        raise _unsupported(folder, "model", f"WordPiece whose vocabulary lacks {unknown!r:.50}")
    padding = document.get("padding")
    stated = padding.get("pad_id") if isinstance(padding, dict) else None
    truncation = document.get("truncation")
    limits = [truncation.get("max_length") if isinstance(truncation, dict) else None, max_length]
    return WordPiece(
        ids,
        tuple(entry["content"] for entry in added),
        unknown,
        str(model.get("continuing_subword_prefix", "##")),
        int(model.get("max_input_chars_per_word", 100)),
        first,
        last,
        stated if isinstance(stated, int) else ids.get("[PAD]", 0),
        min(limit for limit in limits if isinstance(limit, int)),
    )


def _require(folder: Path, part: str, stated: Any, supported: str) -> None:
    kind = stated.get("type") if isinstance(stated, dict) else "none"
    if kind != supported:
        raise _unsupported(folder, part, kind)


def _unsupported(folder: Path, part: str, kind: object) -> Refused:
    return Refused(
        f"{folder / TOKENIZER} has the {part} {kind}, which cannot be fused into the graph",
        "tokenizers of the BERT family can be: WordPiece with BertNormalizer, BertPreTokenizer, and one token before and after "
        "each text; for others feed input_ids from the producer, with the ONNX file as MODEL",
    )


def _frame(folder: Path, processor: Any, ids: Mapping[str, int]) -> tuple[int, int]:
    """Return the ids of the tokens that the post-processor in tokenizer.json adds before and after each text."""
    kind = processor.get("type") if isinstance(processor, dict) else "none"
    if kind == "BertProcessing":
        tokens = [processor["cls"][0], processor["sep"][0]]
    elif kind == "TemplateProcessing":
        single = processor.get("single") or []
        special = [entry.get("SpecialToken", {}).get("id") for entry in single]
        kinds = [next(iter(entry), "") for entry in single]
        tokens = [special[0], special[2]] if kinds == ["SpecialToken", "Sequence", "SpecialToken"] else []
    else:
        raise _unsupported(folder, "post_processor", kind)
    if len(tokens) != 2 or not all(token in ids for token in tokens):
        raise _unsupported(folder, "post_processor", f"{kind} without one token before and after each text")
    return ids[tokens[0]], ids[tokens[1]]


def _max_length(folder: Path, config: Mapping[str, Any]) -> int:
    """Return the largest number of tokens of a text: the smallest limit that a file of the folder states."""
    stated = [config.get("max_position_embeddings")]
    for name, key in (("tokenizer_config.json", "model_max_length"), ("sentence_bert_config.json", "max_seq_length")):
        if (folder / name).is_file():
            stated.append(_object(folder, name).get(key))
    limits = [int(limit) for limit in stated if isinstance(limit, int | float) and 2 < limit < UNLIMITED]
    if not limits:
        raise Refused(
            f"{folder} does not state the largest number of tokens", 'write "max_position_embeddings" into config.json'
        )
    return min(limits)


def _pooling(folder: Path) -> tuple[str, bool]:
    """Return the pooling, and whether the vector is normalized, as modules.json and 1_Pooling/config.json state them."""
    types = []
    if (folder / "modules.json").is_file():
        modules = imported_model.read_json(folder, "modules.json")
        if not isinstance(modules, list):
            raise Refused(f"{folder / 'modules.json'} is not a JSON array", "save the model again")
        types = [str(module.get("type", "")).rpartition(".")[2] for module in modules if isinstance(module, dict)]
        if unknown := [name for name in types if name not in ("Transformer", "Pooling", "Normalize")]:
            raise Refused(
                f"{folder / 'modules.json'} has the module {unknown[0]:.50}, which cannot be fused", "export it into the model"
            )
    if not (folder / "1_Pooling" / CONFIG).is_file():
        return "", "Normalize" in types
    stated = _object(folder, f"1_Pooling/{CONFIG}")
    modes = [mode for mode, key in POOLINGS.items() if stated.get(key) or stated.get("pooling_mode") == mode]
    others = [
        key for key, value in stated.items() if key.startswith("pooling_mode_") and value and key not in POOLINGS.values()
    ]
    if len(modes) != 1 or others:
        listed = ", ".join([*modes, *others]) or str(stated.get("pooling_mode", "none"))
        raise Refused(
            f"{folder / '1_Pooling' / CONFIG} states the pooling {listed:.100}, which cannot be fused",
            f"init can fuse one of {', '.join(POOLINGS)}; for another pooling, export the model with its pooling",
        )
    return modes[0], "Normalize" in types


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    stated = config.get("id2label")
    if not isinstance(stated, dict) or not 0 < len(stated) <= MAX_LABELS:
        return ()
    numbers = {str(number) for number in range(len(stated))}
    return tuple(str(stated[str(number)]) for number in range(len(stated))) if stated.keys() == numbers else ()


def _object(folder: Path, name: str) -> dict[str, Any]:
    document = imported_model.read_json(folder, name)
    if not isinstance(document, dict):
        raise Refused(f"{folder / name} is not a JSON object", "save the model again")
    return document
