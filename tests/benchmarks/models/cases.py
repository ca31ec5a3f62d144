"""The served models, the manual completion of each package, and their events.

An event is a dict of arrays and texts. `record` is the record of its producer; `example` the JSON object that represents it in
`init --example` and in golden examples; `feed` the tensors of several events for ONNX Runtime, assembled here without code of
the product.
"""

import base64
import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.models import networks
from tests.support.graphs import encoder

Event = dict[str, Any]
Feed = dict[str, NDArray[Any]]
LONGEST, VOCABULARY = 128, 30_522
EXTENSIONS = "ai.onnx.contrib"


@dataclass(frozen=True, slots=True)
class Case:
    """A model and its events.

    `complete` fills in the draft of `init`. ONNX Runtime runs events with the same `alike` together; if `alone` is set, each
    event separately. `carried` returns the carried fields of a score.
    """

    name: str
    write: Callable[[Path], None]
    draw: Callable[[np.random.Generator], Event]
    complete: Callable[[dict[str, Any]], None]
    feed: Callable[[Sequence[Event]], Feed]
    example: Callable[[Event], dict[str, Any]]
    count: int
    labels: Sequence[str] = ()
    raw: str = ""  # the field whose bytes are the whole value of a record
    settings: dict[str, Any] = field(default_factory=dict)
    alike: Callable[[Event], Hashable] = lambda _: 0
    alone: bool = False
    carried: Callable[[Event], dict[str, Any] | None] = lambda _: None
    extensions: bool = False

    def record(self, number: int, event: Event) -> tuple[bytes, list[tuple[str, bytes]]]:
        """Return the value and the headers of an event's record."""
        if self.raw:
            return event[self.raw].tobytes(), [("ce_id", f"e{number}".encode())]
        return json.dumps(self.example(event), separators=(",", ":")).encode(), [("ce_id", f"e{number}".encode())]


def stacked(*names: str) -> Callable[[Sequence[Event]], Feed]:
    return lambda events: {name: np.stack([event[name] for event in events]) for name in names}


def lists(*names: str) -> Callable[[Event], dict[str, Any]]:
    return lambda event: {name: event[name].tolist() for name in names}


def images(name: str, dtype: str, count: int) -> Case:
    """A ResNet-50; float32 images are whole values, uint8 images base64 in a field."""
    whole = dtype == "float32"

    def draw(random: np.random.Generator) -> Event:
        patches = np.kron(random.random((3, 7, 7)), np.ones((32, 32))) + 0.2 * random.random((3, 224, 224))
        return {"image": patches.astype("<f4") if whole else (patches * 212).astype(np.uint8)}

    def complete(document: dict[str, Any]) -> None:
        document["inputs"][0]["fields"] = [{"name": "image", "bytes": True} | ({"from": "value"} if whole else {})]
        document["output"]["top"] = 5

    return Case(
        name,
        lambda path: networks.image_classifier(path, cast=not whole),
        draw,
        complete,
        stacked("image"),
        lambda event: {"image": base64.b64encode(event["image"].tobytes()).decode()},
        count,
        [f"class {number}" for number in range(networks.CLASSES)],
        raw="image" if whole else "",
        settings={"batching": {"max_events": 4}} | ({"input": {"format": "bytes", "id": "header:ce_id"}} if whole else {}),
    )


def texts(count: int) -> Case:
    """A BERT over ids of 4 to 128 tokens."""
    names = "input_ids", "token_type_ids"

    def draw(random: np.random.Generator) -> Event:
        size = int(np.exp(random.uniform(np.log(4), np.log(LONGEST + 0.99))))
        return {"input_ids": random.integers(0, VOCABULARY, size), "token_type_ids": random.integers(0, 2, size)}

    def complete(document: dict[str, Any]) -> None:
        for entry in document["inputs"]:
            if entry["tensor"] == "attention_mask":
                entry.clear()
                entry |= {"tensor": "attention_mask", "dtype": "int64", "mask_of": "input_ids"}
            else:
                entry |= {"shape": [-1], "pad": 0, "fields": [{"name": entry["tensor"], "array": True, "max_length": LONGEST}]}

    def feed(events: Sequence[Event]) -> Feed:
        sizes = [len(event["input_ids"]) for event in events]
        rows = {name: np.zeros((len(events), max(sizes)), np.int64) for name in (*names, "attention_mask")}
        for row, (event, size) in enumerate(zip(events, sizes, strict=True)):
            rows["attention_mask"][row, :size] = 1
            for name in names:
                rows[name][row, :size] = event[name]
        return rows

    return Case(
        "bert",
        lambda path: encoder(path, 4, 256, VOCABULARY, LONGEST, types=True),
        draw,
        complete,
        feed,
        lists(*names),
        count,
        settings={"batching": {"max_events": 16}},  # a busy server needs longer than its deadline for larger batches
        alike=lambda event: len(event["input_ids"]) // 16,
    )


def sentences(count: int) -> Case:
    """A classifier with its tokenizer in the graph, which takes one text at a time."""

    def draw(random: np.random.Generator) -> Event:
        words = [word.removeprefix("##") for word in random.choice(networks.WORDS, random.integers(2, 24))]
        return {"text": " ".join(words).capitalize() + random.choice(["", ".", "!", " unheard"])}

    def complete(document: dict[str, Any]) -> None:
        document["inputs"] = [{"tensor": "text", "dtype": "string", "shape": [1], "batch": False, "fields": ["text"]}]

    return Case(
        "tokenizer",
        networks.text_classifier,
        draw,
        complete,
        lambda events: {"text": np.array([events[0]["text"]], object)},
        lambda event: {"text": event["text"]},
        count,
        networks.TOPICS,
        settings={"model": {"op_domains": ["com.microsoft", EXTENSIONS]}},
        alone=True,
        extensions=True,
    )


def voices(count: int) -> Case:
    """A voice detector: the batch is the second axis of its state, so that it takes one event at a time."""
    state, rate = np.zeros((2, 1, networks.STATE), np.float32), np.array(16_000, np.int64)

    def complete(document: dict[str, Any]) -> None:
        sound, begin, rate = document["inputs"]
        sound |= {"shape": [1, networks.FRAME], "batch": False, "fields": [{"name": "input", "array": True}]}
        begin |= {"shape": [2, 1, networks.STATE], "value": 0}
        rate |= {"value": 16_000}

    return Case(
        "voice",
        networks.voice_detector,
        lambda random: {"input": random.normal(size=networks.FRAME).astype(np.float32)},
        complete,
        lambda events: {"input": events[0]["input"][None], "state": state, "sr": rate},
        lists("input"),
        count,
        alone=True,
    )


def cells(count: int) -> Case:
    """An LSTM cell whose state starts with zeros."""

    def complete(document: dict[str, Any]) -> None:
        for entry in document["inputs"][1:]:
            entry.pop("fields")
            entry |= {"shape": [64], "value": 0}
        document["output"] = [{"name": name, "tensor": name} for name in ("next", "hn")]

    def feed(events: Sequence[Event]) -> Feed:
        zeros = np.zeros((len(events), 64), np.float32)
        return {"x": np.stack([event["x"] for event in events]), "h": zeros, "c": zeros}

    return Case(
        "lstm-cell",
        networks.lstm_cell,
        lambda random: {"x": random.normal(size=12).astype(np.float32)},
        complete,
        feed,
        lists("x"),
        count,
    )


def detections(count: int) -> Case:
    """A detector of several outputs, on Debezium's envelopes; `init` finds its field."""

    def draw(random: np.random.Generator) -> Event:
        return {"features": random.normal(size=networks.FEATURES).astype(np.float32), "camera": int(random.integers(100))}

    def example(event: Event) -> dict[str, Any]:
        after = {"camera": f"camera-{event['camera']}", "features": event["features"].tolist()}
        return {"before": None, "after": after, "source": {"table": "frames"}, "op": "c"}

    def complete(document: dict[str, Any]) -> None:
        document["output"].append({"name": "count", "tensor": "count"})

    return Case(
        "detector",
        networks.detector,
        draw,
        complete,
        stacked("features"),
        example,
        count,
        networks.KINDS,
        settings={"output": {"carry": ["after.camera"]}},
        carried=lambda event: {"after.camera": f"camera-{event['camera']}"},
    )


def lines(count: int) -> Case:
    """A recogniser of lines of text whose width varies; nothing is padded."""

    def draw(random: np.random.Generator) -> Event:
        return {"x": random.random((1, 32, 8 * int(random.integers(4, 25)))).round(3).astype(np.float32)}

    def complete(document: dict[str, Any]) -> None:
        document["inputs"][0] |= {"shape": [1, 32, -1], "fields": [{"name": "x", "array": True, "max_length": 192}]}

    return Case(
        "ocr",
        networks.recogniser,
        draw,
        complete,
        stacked("x"),
        lists("x"),
        count,
        networks.LETTERS,
        alike=lambda event: event["x"].shape[-1],
    )


def cases() -> list[Case]:
    return [
        images("resnet-50", "float32", 10),
        images("resnet-50-uint8", "uint8", 10),
        texts(100),
        sentences(600),
        voices(300),
        cells(3_000),
        detections(3_000),
        lines(100),
    ]
