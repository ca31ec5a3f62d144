"""Train the demo's models and convert them to ONNX. Reads and writes no files.

The inputs of each model are the numeric fields as one float32 tensor `x` of shape (B, n), and each category as a string tensor
of shape (B, 1). The output is `probabilities` of shape (B, 2): on time, late. A category value that was not in the training
data is allowed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from lightgbm import LGBMClassifier
from onnx import ModelProto
from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm
from skl2onnx import convert_sklearn, update_registered_converter
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes
from skl2onnx.helpers.onnx_helper import select_model_inputs_outputs
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from scorer.demo import weather
from training.demo_dataset.features import Event

SEED = 2013
CATEGORIES = ("carrier", "origin", "dest")
NUMBERS = "x"
OUTPUT = "probabilities"
UNKNOWN = dict.fromkeys(CATEGORIES, "") | {"dep_delay": np.float32("nan")}  # the replacement of a missing value, by field
OPTIONAL = ("dep_delay", *(f"{weather.TABLE}.{name}" for name in weather.COLUMNS))
"""The numeric fields that may be unknown."""
UNKNOWN_SHARE = 0.02  # the share of the training rows that is repeated without the value of a field
OPSETS = {"": 18, "ai.onnx.ml": 3}

Outcomes = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class DemoRecipe:
    """A version of the demo's model: its fields, and the function that trains it.

    Attributes:
        fit: Trains the model. Its arguments are a frame with one row per flight, and whether each flight was late.
        treatment: The text of the model card about unknown values.
    """

    version: str
    title: str
    numbers: tuple[str, ...]
    fit: Callable[[pd.DataFrame, Outcomes], Pipeline]
    treatment: str

    @property
    def fields(self) -> tuple[str, ...]:
        return (*self.numbers, *CATEGORIES)

    @property
    def weather(self) -> bool:
        """Whether the recipe has fields of the weather."""
        return any(name.startswith(f"{weather.TABLE}.") for name in self.numbers)

    def frame(self, events: Sequence[Event]) -> pd.DataFrame:
        """Return the model's fields of these events: numbers as float32 (null becomes NaN), categories as strings."""
        frame = pd.DataFrame({name: [event[name] for event in events] for name in self.fields})
        return frame.astype(dict.fromkeys(self.numbers, np.float32) | dict.fromkeys(CATEGORIES, object))


def fit_logistic(frame: pd.DataFrame, late: Outcomes) -> Pipeline:
    """Fit logistic regression on scaled numbers and one-hot categories; an unknown number becomes the training median."""
    numbers, categories = _positions(frame)
    scaled = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    columns = ColumnTransformer(
        [("numbers", scaled, numbers), ("categories", OneHotEncoder(handle_unknown="ignore"), categories)]
    )
    return make_pipeline(columns, LogisticRegression(max_iter=1000)).fit(frame, late)


def fit_trees(frame: pd.DataFrame, late: Outcomes) -> Pipeline:
    """Fit gradient boosted trees on numbers and categories."""
    # Categories are numbered by their share of late flights, ascending, so that one split separates the categories with few
    # late flights from the others. Some rows are added again without the value of a field. Without these copies LightGBM would
    # treat NaN as 0, and a new category as the category with the fewest late flights.
    numbers, categories = _positions(frame)
    ordered = [_by_late_share(frame[name], late) for name in CATEGORIES]
    encoder = OrdinalEncoder(categories=ordered, handle_unknown="use_encoded_value", unknown_value=-1)
    columns = ColumnTransformer([("numbers", "passthrough", numbers), ("categories", encoder, categories)])
    trees = LGBMClassifier(
        n_estimators=100,
        num_leaves=31,
        learning_rate=0.1,
        min_child_samples=50,
        random_state=SEED,
        deterministic=True,
        force_row_wise=True,
        n_jobs=1,
        verbose=-1,
    )
    samples = {name: frame.sample(frac=UNKNOWN_SHARE, random_state=SEED + i) for i, name in enumerate(UNKNOWN)}
    taught = pd.concat([frame, *(rows.assign(**{name: UNKNOWN[name]}) for name, rows in samples.items())])
    return make_pipeline(columns, trees).fit(taught, np.concatenate([late, *(late[r.index] for r in samples.values())]))


RECIPES = (
    DemoRecipe(
        "1.0.0",
        "logistic regression",
        ("dep_delay", "distance", "hour"),
        fit_logistic,
        "An unknown `dep_delay` is replaced by the training median inside the graph, so a cancelled flight is scored\n"
        "as one that leaves about on time. A carrier or airport that training never saw is scored without what its\n"
        "name would say.",
    ),
    DemoRecipe(
        "2.0.0",
        "gradient boosted trees (LightGBM, 100 trees)",
        ("dep_delay", "distance", "hour", "minute", "day_of_week", "scheduled_minutes"),
        fit_trees,
        "An unknown `dep_delay`, carrier or airport takes the branches that the trees learned from samples of\n"
        f"{UNKNOWN_SHARE:.0%} of the training rows, added again without that field. Which fields to use was settled\n"
        "by training on January to June and measuring on July and August.",
    ),
)


WITH_WEATHER = replace(
    RECIPES[1],
    version="3.0.0",
    title="gradient boosted trees (LightGBM, 100 trees) with the weather",
    numbers=(*RECIPES[1].numbers, *(f"{weather.TABLE}.{name}" for name in weather.COLUMNS)),
    treatment=f"{RECIPES[1].treatment}\n\nThe weather is that of the airport in the hour of the scheduled departure, from "
    "the table `weather`. A flight\nwithout a report is scored with unknown weather.",
)
"""Version 2.0.0 with further fields, which `scorer demo --tables` joins from a table."""


def to_onnx(pipeline: Pipeline, recipe: DemoRecipe) -> ModelProto:
    """Convert the pipeline to ONNX, with the probabilities as its only output and a variable batch size."""
    update_registered_converter(
        LGBMClassifier,
        "LightGbmLGBMClassifier",
        calculate_linear_classifier_output_shapes,
        convert_lightgbm,
        options={"nocl": [True, False], "zipmap": [True, False, "columns"]},
    )
    inputs = [(NUMBERS, FloatTensorType([None, len(recipe.numbers)]))]
    inputs += [(name, StringTensorType([None, 1])) for name in CATEGORIES]
    graph = convert_sklearn(pipeline, "flight-delay", inputs, target_opset=OPSETS, options={id(pipeline): {"zipmap": False}})
    model: ModelProto = select_model_inputs_outputs(graph, OUTPUT)
    in_order = sorted(model.opset_import, key=lambda opset: opset.domain)  # the converter lists them in a set's order
    del model.opset_import[:]
    model.opset_import.extend(in_order)
    return model


def tensors(frame: pd.DataFrame, recipe: DemoRecipe) -> dict[str, npt.NDArray[Any]]:
    """Return the input tensors of these rows: (B, n) float32 and (B, 1) strings."""
    numbers = {NUMBERS: frame[list(recipe.numbers)].to_numpy(np.float32)}
    return numbers | {name: frame[[name]].to_numpy(object) for name in CATEGORIES}


def _positions(frame: pd.DataFrame) -> tuple[list[int], list[int]]:
    """Return the positions of the numeric columns and of the category columns."""
    # The pipeline must name columns by position. The ONNX converter then reads all numeric columns from one tensor, and each
    # category column from a tensor of its own.
    names = list(frame.columns)
    return [i for i, n in enumerate(names) if n not in CATEGORIES], [names.index(n) for n in CATEGORIES]


def _by_late_share(column: pd.Series, late: Outcomes) -> list[str]:
    share = pd.DataFrame({"name": column, "late": late}).groupby("name")["late"].mean()
    return [str(name) for name in share.sort_values(kind="stable").index]
