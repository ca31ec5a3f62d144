"""ONNX Runtime called directly: the outputs of a model, its cost in batches, and the error of scores."""

import time
from collections import defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from tests.benchmarks.models.cases import Case, Event, Feed


class Direct:
    """A model in a session of one thread, as in a scorer."""

    def __init__(self, case: Case, path: Path) -> None:
        self._case = case
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        if case.extensions:
            import onnxruntime_extensions

            options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
        self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]

    def answers(self, events: Sequence[Event]) -> list[Feed]:
        """Return the rows of each event's outputs, by name."""
        runs = (self._run(self._case.feed([event])) for event in events)
        return [{name: output[0] for name, output in outputs.items()} for outputs in runs]

    def cpu_us(self, events: Sequence[Event], batch: int) -> float:
        """Return the CPU microseconds per event in batches of `batch`. Of a batch, events that are `alike` run together."""
        feeds = [feed for start in range(0, len(events), batch) for feed in self._feeds(events[start : start + batch])]
        self._run(feeds[0])
        began = time.process_time()
        for feed in feeds:
            self._run(feed)
        return (time.process_time() - began) / len(events) * 1e6

    def _feeds(self, events: Sequence[Event]) -> list[Feed]:
        groups: defaultdict[Hashable, list[Event]] = defaultdict(list)
        for number, event in enumerate(events):
            groups[number if self._case.alone else self._case.alike(event)].append(event)
        return [self._case.feed(group) for group in groups.values()]

    def _run(self, feed: Feed) -> Feed:
        return dict(zip(self._names, self._session.run(self._names, feed), strict=True))


def answer(outputs: Feed, signature: dict[str, Any]) -> Any:
    """Return the score of these rows, in the form of golden examples."""
    stated, labels = signature["output"], signature.get("labels", [])
    if isinstance(stated, dict):
        return _answer(outputs[stated["tensor"]], stated, labels)
    return {output["name"]: _answer(outputs[output["tensor"]], output, labels) for output in stated}


def _answer(row: NDArray[Any], stated: dict[str, Any], labels: Sequence[str]) -> Any:
    if "top" not in stated:
        return (row.reshape(()) if row.shape == (1,) else row).tolist()
    order = np.argsort(-row, kind="stable")[: stated["top"]].tolist()
    return [{"label": labels[at], "score": float(row[at])} for at in order]


def relative_error(score: Any, outputs: Feed, signature: dict[str, Any]) -> float:
    """Return the error of a score against a model's outputs, as a share of the largest number.

    It is infinity if the score has another structure.
    """
    stated = signature["output"]
    if isinstance(stated, dict):
        return _relative_error(score, outputs[stated["tensor"]], stated, signature.get("labels", []))
    if not isinstance(score, dict) or list(score) != [output["name"] for output in stated]:
        return float("inf")
    labels = signature.get("labels", [])
    return max(_relative_error(score[output["name"]], outputs[output["tensor"]], output, labels) for output in stated)


def _relative_error(score: Any, row: NDArray[Any], stated: dict[str, Any], labels: Sequence[str]) -> float:
    if "top" not in stated:
        expected = row.reshape(()) if row.shape == (1,) else row
        actual = np.asarray(score)
        return _largest_share(actual, expected) if actual.shape == expected.shape else float("inf")
    if not isinstance(score, list) or len({item["label"] for item in score}) != stated["top"]:
        return float("inf")
    numbers = np.array([item["score"] for item in score])
    named = row[[labels.index(item["label"]) for item in score]]  # the order of two nearly equal labels may differ
    return max(_largest_share(numbers, np.sort(row)[::-1][: len(numbers)]), _largest_share(numbers, named))


def _largest_share(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    largest = float(np.abs(expected).max())
    return float(np.abs(actual.astype(np.float64) - expected.astype(np.float64)).max()) / (largest or 1.0)
