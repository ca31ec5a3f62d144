"""Builds the ONNX nodes of a WordPiece tokenizer: from a text for each event to token ids, a mask and token types.

For some texts, the operators BertTokenizer and WordpieceTokenizer of onnxruntime-extensions give other ids than the library
`tokenizers`: for words with an unknown character (the operators keep the word's first tokens), for Hangul, and for added tokens
in a text. The graph therefore normalizes each character by a table that `tokenizers` computed, and corrects unknown words.
`onnx` and `tokenizers` must be installed.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from model_registry.onnx_tools.hugging_face_folder import WordPiece

CONTRIB = "ai.onnx.contrib"
MICROSOFT = "com.microsoft"
PREFIX = "word_piece/"
SEPARATOR = "\u21af"  # a symbol that no normalizer of BERT changes, and that no other character becomes
UNCHANGED = "="  # no character becomes this text, because = is surrounded with spaces
CODE_POINTS = 0x110000
SURROGATES = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class CharacterTable:
    """The results of a normalizer and a pre-tokenizer for each character. A character in neither attribute is unchanged.

    Attributes:
        changed: The text that replaces a character, by character. Spaces in the text separate words.
        removed: The ranges (first, last) of code points that are removed.
    """

    changed: dict[str, str]
    removed: list[tuple[int, int]]


def character_table(tokenizer: Any) -> CharacterTable:
    """Compute the table of all characters with the normalizer and pre-tokenizer of a `tokenizers.Tokenizer`."""
    # Both work on each character by itself, so that one call normalizes all characters.
    characters = [chr(point) for point in range(CODE_POINTS) if point not in SURROGATES and chr(point) != SEPARATOR]
    normalized = tokenizer.normalizer.normalize_str(SEPARATOR.join(characters)).split(SEPARATOR)
    words: dict[str, str] = {}
    changed: dict[str, str] = {}
    removed: list[tuple[int, int]] = []
    for character, text in zip(characters, normalized, strict=True):
        if text:
            separated = "".join(words.get(part) or words.setdefault(part, _separated(tokenizer, part)) for part in text)
            if separated != character:
                changed[character] = separated
        elif removed and removed[-1][1] == ord(character) - 1:
            removed[-1] = (removed[-1][0], ord(character))
        else:
            removed.append((ord(character), ord(character)))
    return CharacterTable(changed, removed)


def _separated(tokenizer: Any, character: str) -> str:
    """Return the text that replaces a character, so that spaces separate words as the pre-tokenizer does.

    A character that is a word of its own, such as a comma, gets a space on each side. White space becomes one space.
    """
    parts = [part for part, _ in tokenizer.pre_tokenizer.pre_tokenize_str(f"x{character}x")]
    return character if len(parts) == 1 else " " if len(parts) == 2 else f" {character} "


@dataclass(slots=True)
class GraphBuilder:
    """Collects nodes and constants; each method adds one node and returns the name of its output."""

    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def add(self, operator: str, *inputs: str, domain: str = "", name: str = "", **attributes: Any) -> str:
        """Add a node with one output."""
        return self.add_all(operator, *inputs, domain=domain, names=[name], **attributes)[0]

    def add_all(self, operator: str, *inputs: str, names: Sequence[str], domain: str = "", **attributes: Any) -> list[str]:
        """Add a node with an output for each name; an empty name is generated."""
        from onnx import helper

        outputs = [name or f"{PREFIX}{len(self.nodes)}_{number}" for number, name in enumerate(names)]
        self.nodes.append(helper.make_node(operator, list(inputs), outputs, domain=domain, **attributes))
        return outputs

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """Add a constant tensor."""
        from onnx import numpy_helper

        name = f"{PREFIX}constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name


def add_tokenizer(graph: GraphBuilder, tokenizer: WordPiece, table: CharacterTable, text: str) -> tuple[str, str, str]:
    """Add the nodes of a tokenizer.

    Args:
        graph: The graph.
        tokenizer: The tokenizer.
        table: The table of its characters.
        text: The name of a string tensor of shape (B, 1).

    Returns:
        The names of the token ids, the mask and the token types: int64 tensors of shape (B, S), where S is the number of tokens
        of the longest text.
    """
    texts = graph.add("Reshape", text, graph.constant([-1]))
    words = _add_words(graph, tokenizer, table, texts)
    ids, text_of = _add_tokens(graph, tokenizer, words)
    return _add_batch(graph, tokenizer, texts, ids, text_of)


def _add_words(graph: GraphBuilder, tokenizer: WordPiece, table: CharacterTable, texts: str) -> str:
    """Add nodes that normalize texts (B,) and split them into words (B, W).

    The first word of each text is the token `tokenizer.first`. Returns the name of the words' tensor.
    """
    added = "".join(f"{re.escape(token)}|" for token in sorted(tokenizer.added, key=len, reverse=True))
    removed = "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in table.removed)
    expression = f"{added}[^{removed}]" if removed else f"{added}(?s:.)"
    characters = graph.add("Tokenizer", texts, domain=MICROSOFT, mark=0, mincharnum=1, pad_value="", tokenexp=expression)
    replacements = {**table.changed, **{token: f" {token} " for token in tokenizer.added}}
    replaced = graph.add(
        "LabelEncoder",
        characters,
        domain="ai.onnx.ml",
        keys_strings=list(replacements),
        values_strings=list(replacements.values()),
        default_string=UNCHANGED,
    )
    unchanged = graph.add(
        "LabelEncoder", replaced, domain="ai.onnx.ml", keys_strings=[UNCHANGED], values_int64s=[1], default_int64=0
    )
    normalized = graph.add("Where", graph.add("Cast", unchanged, to=9), characters, replaced)
    number = graph.add("Reshape", _add_range(graph, _add_size(graph, texts, 0)), graph.constant([-1, 1]))
    first = graph.constant(f"{_token(tokenizer, tokenizer.first)} ", object)
    firsts = graph.add("Where", graph.add("Equal", number, number), first, first)  # (B, 1)
    marked = graph.add("Concat", firsts, normalized, axis=1)
    joined = graph.add("StringJoin", marked, graph.constant([""], object), graph.constant([1]), domain=CONTRIB)
    return graph.add("Tokenizer", joined, domain=MICROSOFT, mark=0, mincharnum=1, pad_value="", separators=[" "])


def _token(tokenizer: WordPiece, number: int) -> str:
    return next(token for token, value in tokenizer.vocabulary.items() if value == number)


def _add_tokens(graph: GraphBuilder, tokenizer: WordPiece, words: str) -> tuple[str, str]:
    """Add nodes that split words (B, W) into tokens.

    Returns:
        The names of two tensors (n,): the ids of all tokens of all texts, and the index of each token's text in the batch.
    """
    vocabulary = tokenizer.vocabulary
    flat = graph.add("Reshape", words, graph.constant([-1]))
    tokens, _, begins, ends = graph.add_all(
        "WordpieceTokenizer",
        flat,
        graph.constant([]),
        domain=CONTRIB,
        names=[""] * 4,
        vocab=json.dumps(vocabulary, ensure_ascii=False),
        suffix_indicator=tokenizer.prefix,
        unknown_token=tokenizer.unknown,
        max_input_chars_per_word=tokenizer.most_characters,
    )
    ids = graph.add(
        "LabelEncoder",
        tokens,
        domain="ai.onnx.ml",
        keys_strings=list(vocabulary),
        values_int64s=list(vocabulary.values()),
        default_int64=vocabulary[tokenizer.unknown],
    )
    has_tokens = graph.add("Greater", ends, begins)
    number = graph.add("Div", _add_range(graph, _add_size(graph, flat, 0)), _add_size(graph, words, 1))
    text_of_word = graph.add("Compress", number, has_tokens, axis=0)
    first = graph.add("Compress", begins, has_tokens, axis=0)
    last = graph.add("Sub", graph.add("Compress", ends, has_tokens, axis=0), graph.constant(1))
    # The operator keeps the tokens before an unknown part of a word: only the last one, the unknown token, belongs to the word.
    place = _add_range(graph, _add_size(graph, ids, 0))
    zeros = graph.add("Mul", place, graph.constant(0))
    ones = graph.add("Add", graph.add("Mul", first, graph.constant(0)), graph.constant(1))
    starts = graph.add("ScatterElements", zeros, first, ones, axis=0)
    word = graph.add("Sub", graph.add("CumSum", starts, graph.constant(0)), graph.constant(1))
    last_of_word = graph.add("Gather", last, word)
    is_unknown = graph.add("Equal", graph.add("Gather", ids, last_of_word), graph.constant(vocabulary[tokenizer.unknown]))
    belongs = graph.add("Or", graph.add("Not", is_unknown), graph.add("Equal", place, last_of_word))
    text_of = graph.add("Gather", text_of_word, word)
    return graph.add("Compress", ids, belongs, axis=0), graph.add("Compress", text_of, belongs, axis=0)


def _add_batch(graph: GraphBuilder, tokenizer: WordPiece, texts: str, ids: str, text_of: str) -> tuple[str, str, str]:
    """Add nodes that cut off texts that are too long, append the last token, and pad the texts to one length.

    `ids` and `text_of` are the results of `_add_tokens`. Returns the names of the token ids, the mask and the token types.
    """
    zero, one = graph.constant(0), graph.constant(1)
    count = _add_size(graph, texts, 0)
    total = _add_size(graph, ids, 0)
    index = _add_range(graph, total)
    # The texts follow each other, and each has at least one token: a text starts where the number of the text changes.
    before = graph.add("Gather", text_of, graph.add("Max", graph.add("Sub", index, one), zero))
    is_start = graph.add("Or", graph.add("Equal", index, zero), graph.add("Less", before, text_of))
    starts = graph.add("Compress", index, is_start, axis=0)
    ends = graph.add("Slice", starts, graph.constant([1]), graph.constant([np.iinfo(np.int64).max]))
    ends = graph.add("Concat", ends, graph.add("Reshape", total, graph.constant([1])), axis=0)
    lengths = graph.add("Sub", ends, starts)
    place = graph.add("Sub", index, graph.add("Gather", starts, text_of))
    room = graph.constant(tokenizer.max_length - 1)
    fits = graph.add("Less", place, room)
    ids, text_of, place = (graph.add("Compress", values, fits, axis=0) for values in (ids, text_of, place))
    lengths = graph.add("Min", lengths, room)
    largest, _ = graph.add_all("TopK", lengths, graph.constant([1]), names=["", ""], axis=0)
    longest = graph.add("Add", largest, graph.constant([1]))
    shape = graph.add("Concat", graph.add("Reshape", count, graph.constant([1])), longest, axis=0)
    padded = graph.add("Expand", graph.constant(tokenizer.padding), shape)
    padded = graph.add("ScatterND", padded, _add_pairs(graph, text_of, place), ids)
    text = _add_range(graph, count)
    last = graph.add("Add", graph.add("Mul", text, zero), graph.constant(tokenizer.last))
    token_ids = graph.add("ScatterND", padded, _add_pairs(graph, text, lengths), last)
    column = graph.add(
        "Reshape", _add_range(graph, graph.add("Reshape", longest, graph.constant([], np.int64))), graph.constant([1, -1])
    )
    within = graph.add("Not", graph.add("Greater", column, graph.add("Reshape", lengths, graph.constant([-1, 1]))))
    mask = graph.add("Cast", within, to=7)
    return token_ids, mask, graph.add("Mul", token_ids, graph.constant(0))


def _add_pairs(graph: GraphBuilder, rows: str, columns: str) -> str:
    """Add nodes that form the index pairs (n, 2) of rows and columns (n,)."""
    one = graph.constant([-1, 1])
    return graph.add("Concat", graph.add("Reshape", rows, one), graph.add("Reshape", columns, one), axis=1)


def _add_size(graph: GraphBuilder, tensor: str, axis: int) -> str:
    return graph.add("Gather", graph.add("Shape", tensor), graph.constant(axis))


def _add_range(graph: GraphBuilder, count: str) -> str:
    return graph.add("Range", graph.constant(0), count, graph.constant(1))
