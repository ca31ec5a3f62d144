"""The recipe `trees`: gradient boosted trees by LightGBM.

Trees are grown in chunks of `CHUNK` trees. Each chunk is a LightGBM model that starts from the summed predictions of the
previous chunks. Chunks are stored as text, so that a training can be interrupted, or continued to a larger budget, and still
gives the same model. LightGBM's own way to continue a training (`init_model`) is not used, because with bagging it would grow
different trees.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightgbm
import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from model_registry import atomic_files
from model_registry.package.signature import Signature
from publisher.errors import REFUSED, USAGE, Fatal
from training.recipes import Params, check_signature, trees_to_onnx
from training.recipes.encoding import Matrix, MatrixEncoding, gaps, learned, ordering_numbers
from training.snapshot.rows import LabelledRows
from training.snapshot.target import Target, TargetKind

CHUNK = 27  # the number of trees in a chunk; for K classes, K trees count as one
TAUGHT = 0.02  # the share of the rows that is repeated without a value, for each field that may be missing
DEFAULTS: dict[str, int | float | str] = {
    "learning_rate": 0.1,
    "num_leaves": 31,
    "min_data_in_leaf": 50,
    "lambda_l2": 0.0,
    "feature_fraction": 1.0,
    "bagging_fraction": 1.0,
    "max_bin": 255,
}
OBJECTIVES: Mapping[TargetKind, str] = {"binary": "binary", "classes": "multiclass", "regression": "regression"}
FIXED = {
    "boost_from_average": False,
    "bagging_freq": 1,
    "feature_pre_filter": False,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}
SEEDS = 2**31


class Chunk(msgspec.Struct, frozen=True):
    """A stored chunk of trees.

    Attributes:
        key: A digest of the training data, parameters and seed.
        asked: The requested number of trees; LightGBM grows fewer if no split is left.
        model: The trees in LightGBM's text format.
    """

    key: str
    asked: int
    model: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """The encoded training rows, and copies of rows in which the value of one field is missing.

    Attributes:
        rows: The original rows.
        matrix: The encoded rows.
        outcomes: The labels of the encoded rows.
        digest: A digest of the encoded rows and the signature.
        binned: LightGBM's datasets by the parameter `max_bin`.
    """

    rows: LabelledRows
    signature: Signature
    seed: int
    encoding: MatrixEncoding
    matrix: Matrix
    outcomes: NDArray[Any]
    digest: str
    binned: dict[Any, lightgbm.Dataset] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FittedTrees:
    """A trained model, whose raw scores are `start` plus the sum of all trees.

    The raw score is the log odds of the second of two classes, or the predicted number of a regression. For K classes, `start`
    (K,) and the raw scores (B, K) are logits. Only the first `last` trees of the last chunk are used.
    """

    signature: Signature
    target: Target
    encoding: MatrixEncoding
    start: NDArray[np.float64]
    chunks: tuple[lightgbm.Booster, ...]
    last: int

    def scores(self, tensors: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        matrix = self.encoding.matrix(tensors)
        total = np.full((len(matrix), *self.start.shape), self.start)
        for chunk in self.chunks[:-1]:
            total += _sums(chunk, matrix)
        total += _sums(self.chunks[-1], matrix, self.last)
        if self.target.kind == "regression":
            return total
        if self.target.kind == "classes":
            return np.asarray(softmax(total, axis=1), np.float64)
        probabilities: NDArray[np.float64] = 1 / (1 + np.exp(-total))
        return probabilities

    def onnx(self) -> bytes:
        trees = [tree for chunk in self.chunks[:-1] for tree in chunk.dump_model()["tree_info"]]
        trees += self.chunks[-1].dump_model(num_iteration=self.last)["tree_info"]
        structures = [tree["tree_structure"] for tree in trees]
        return trees_to_onnx.model(self.signature, self.target, self.encoding, self.start, structures)


class Trees:
    """The recipe `trees`, which trains gradient boosted trees (implements `training.recipes.Recipe`).

    The recipe caches the last encoded rows, because all trials of a search train on the same rows.
    """

    name = "trees"

    def __init__(self) -> None:
        self._last: Prepared | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    def check(self, signature: Signature, target: Target) -> None:
        check_signature.check(signature, target, self.name)

    def parameters(self, stated: Params) -> Params:
        for name, value in stated.items():
            if name not in DEFAULTS:
                raise Fatal(
                    f"parameters.{name}: recipe trees has no such parameter", f"its parameters are {', '.join(DEFAULTS)}", USAGE
                )
            if isinstance(value, str):
                raise Fatal(f"parameters.{name}: {value!r} is not a number", "write a number", USAGE)
        return DEFAULTS | dict(stated)

    def suggest(self, trial: Any) -> Params:
        return {
            "learning_rate": trial.suggest_float("learning_rate", 0.03, 0.3, log=True),
            "num_leaves": trial.suggest_int("num_leaves", 7, 127, log=True),
            "min_data_in_leaf": trial.suggest_int("min_data_in_leaf", 5, 200, log=True),
            "lambda_l2": trial.suggest_float("lambda_l2", 1e-3, 10.0, log=True),
            "feature_fraction": trial.suggest_float("feature_fraction", 0.5, 1.0),
            "bagging_fraction": trial.suggest_float("bagging_fraction", 0.5, 1.0),
        }

    def fit(
        self,
        rows: LabelledRows,
        signature: Signature,
        params: Params,
        budget: int,
        folder: Path,
        *,
        seed: int,
        workers: int = 1,
    ) -> FittedTrees:
        """Train up to `budget` trees with `workers` threads. Stored chunks of the same training in `folder` are reused.

        Raises:
            Fatal: Exit code 2 for a signature or parameters that are not supported; 3 if the disk is full.
        """
        self.check(signature, rows.target)
        last = self._last
        if last is None or last.rows is not rows or (last.signature, last.seed) != (signature, seed):
            last = self._last = _prepared(rows, signature, seed)
        full = self.parameters(params)
        growth = _Growth(last, full, folder, workers)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            chunks = [growth.chunk(first, min(CHUNK, budget - first)) for first in range(0, budget, CHUNK)]
        except lightgbm.basic.LightGBMError as error:
            raise Fatal(f"LightGBM rejects the parameters {full}: {error}", "see parameters in training.yaml", USAGE) from None
        except OSError as error:
            raise Fatal(
                f"{folder} cannot be written: {error.strerror}",
                "check the disk space and the permissions, and run again",
                REFUSED,
            ) from None
        kept = budget - (len(chunks) - 1) * CHUNK
        return FittedTrees(signature, rows.target, last.encoding, growth.start, tuple(chunks), kept)


class _Growth:
    """Grows the chunks of trees of one training in order.

    A chunk that is already stored in the folder is reused if it was grown from the same inputs.
    """

    def __init__(self, prepared: Prepared, params: Params, folder: Path, threads: int) -> None:
        self._prepared = prepared
        self._folder = folder
        self._threads = threads
        target = prepared.rows.target
        fixed = {"objective": OBJECTIVES[target.kind], **FIXED}
        if target.kind == "classes":
            fixed["num_class"] = len(target.classes)
        if target.quantile is not None:
            fixed |= {"objective": "quantile", "alpha": target.quantile}
        self._params = fixed | dict(params) | {"num_threads": threads}
        self.start = _start(target, prepared.outcomes)
        self._totals: NDArray[np.float64] = np.full((len(prepared.outcomes), *self.start.shape), self.start)
        self._summed: list[lightgbm.Booster] = []
        inputs = json.dumps([dict(params), prepared.seed, target.quantile, lightgbm.__version__], sort_keys=True)
        self._key = hashlib.sha256(f"{prepared.digest}{inputs}".encode()).hexdigest()

    def chunk(self, first: int, count: int) -> lightgbm.Booster:
        """Return the chunk of trees that starts with tree number `first`, from the disk or newly grown.

        `count` is the number of trees that the caller needs. A new chunk may have fewer trees if no split is left.
        """
        # A stored chunk is used if it was grown for at least `count` trees.
        path = self._folder / f"trees-{first:06}.json"
        stored = self._stored_chunk(path)
        if stored is None or stored.asked < count:
            stored = Chunk(self._key, count, self._grown(first, count))
            atomic_files.replace(path, [msgspec.json.encode(stored)])
        booster = lightgbm.Booster(model_str=stored.model)
        self._summed.append(booster)
        return booster

    def _stored_chunk(self, path: Path) -> Chunk | None:
        """Return the stored chunk if it is complete and has the same inputs, else None."""
        try:
            stored = msgspec.json.decode(path.read_bytes(), type=Chunk)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        return stored if stored.key == self._key else None

    def _grown(self, first: int, count: int) -> str:
        """Grow up to `count` trees from tree number `first` on; return them in LightGBM's text format."""
        prepared = self._prepared
        while self._summed:
            self._totals = self._totals + _sums(self._summed.pop(0), prepared.matrix, threads=self._threads)
        bins = self._params["max_bin"]
        if bins not in prepared.binned:
            prepared.binned[bins] = lightgbm.Dataset(prepared.matrix, prepared.outcomes, params=self._params).construct()
        data = prepared.binned[bins].set_init_score(self._totals)
        booster = lightgbm.Booster({**self._params, "seed": (prepared.seed + first) % SEEDS}, data)
        for _ in range(count):
            if booster.update():
                break
        text: str = booster.model_to_string()
        return text


def _start(target: Target, outcomes: NDArray[Any]) -> NDArray[np.float64]:
    """Return the raw score before the first tree: the constant that fits the outcomes best.

    Its shape is (K,) for K classes, else ().
    """
    if target.kind == "regression":
        return np.array(outcomes.mean() if target.quantile is None else np.quantile(outcomes, target.quantile))
    if target.kind == "classes":
        return np.log(np.bincount(outcomes, minlength=len(target.classes)) / len(outcomes))
    positives = int(outcomes.sum())
    return np.array(math.log(positives / (len(outcomes) - positives)))


def _sums(booster: lightgbm.Booster, matrix: Matrix, trees: int = CHUNK, threads: int = 1) -> NDArray[np.float64]:
    """Return for each row of the matrix the sum of the first `trees` trees of a chunk, (B,), or (B, K) for K classes."""
    return np.asarray(booster.predict(matrix, raw_score=True, num_iteration=trees, num_threads=threads), np.float64)


def _prepared(rows: LabelledRows, signature: Signature, seed: int) -> Prepared:
    """Encode the rows, and add rows in which a field is missing."""
    # Without the added rows LightGBM would treat NaN as 0, and a new category as the category with the smallest share of the
    # second class.
    encoding = learned(rows.tensors, ordering_numbers(rows.target, rows.outcomes), signature)
    matrices = [encoding.matrix(rows.tensors)]
    outcomes = [rows.outcomes]
    for number, gap in enumerate(gaps(signature)):
        drawn = np.random.default_rng([seed, number]).choice(len(rows), round(TAUGHT * len(rows)), replace=False)
        without = matrices[0][np.sort(drawn)]
        without[:, list(gap.columns)] = gap.value
        matrices.append(without)
        outcomes.append(rows.outcomes[np.sort(drawn)])
    matrix = np.concatenate(matrices)
    truth = np.concatenate(outcomes)
    digest = hashlib.sha256(matrix.data)
    digest.update(truth.data)
    digest.update(signature.to_json().encode())
    return Prepared(rows, signature, seed, encoding, matrix, truth, digest.hexdigest())
