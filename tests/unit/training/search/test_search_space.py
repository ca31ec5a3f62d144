"""Parameters that training.yaml declares: their draws, their conditions, and every contradiction by name."""

from typing import Any

import pytest
from pydantic import ValidationError

from tests.unit.training.labelled_rows import settings
from training.recipes.own import Own
from training.recipes.trees import Trees
from training.search.search import drawn, judgement
from training.snapshot.target import Target

SPACE: dict[str, Any] = {
    "depth": {"type": "int", "low": 1, "high": 4, "when": {"kind": ["deep"]}},
    "kind": {"type": "categorical", "values": ["linear", "deep"]},
    "rate": {"type": "float", "low": 1e-4, "high": 0.1, "log": True},
}


def stated(space: Any = None, recipe: Any = None, **others: Any) -> Any:
    search = {"trials": 40, "rungs": [1], "space": SPACE if space is None else space}
    return settings(recipe=recipe or {"command": ["sh", "train.sh"]}, search=search, **others)


def test_parameters_are_drawn_within_their_bounds_and_only_under_their_condition() -> None:
    trials = drawn(Own(), stated())
    assert len(trials) == 40
    for parameters in trials.values():
        assert ("depth" in parameters) == (parameters["kind"] == "deep")
        assert 1e-4 <= float(parameters["rate"]) <= 0.1
    assert {parameters["depth"] for parameters in trials.values() if "depth" in parameters} == {1, 2, 3, 4}
    assert sum(float(parameters["rate"]) < 0.003 for parameters in trials.values()) > 10
    assert drawn(Own(), stated()) == trials


def test_a_fixed_parameter_is_not_drawn_and_decides_conditions() -> None:
    trials = drawn(Own(), stated(parameters={"kind": "linear", "colour": "blue"}))
    assert {tuple(sorted(parameters)) for parameters in trials.values()} == {("colour", "kind", "rate")}


def test_a_built_in_recipe_takes_a_space_and_its_own_defaults_for_the_rest() -> None:
    trials = drawn(Trees(), stated({"num_leaves": {"type": "int", "low": 4, "high": 9}}, "trees"))
    assert {parameters["learning_rate"] for parameters in trials.values()} == {0.1}
    assert {parameters["num_leaves"] for parameters in trials.values()} == {4, 5, 6, 7, 8, 9}


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"a": {"type": "float", "low": 1}}, "needs low and high with low < high"),
        ({"a": {"type": "float", "low": 2, "high": 1}}, "needs low and high with low < high"),
        ({"a": {"type": "float", "low": 0, "high": 1, "log": True}}, "log needs a low above 0"),
        ({"a": {"type": "float", "low": 0, "high": "inf"}}, "must be finite"),
        ({"a": {"type": "int", "low": 0.5, "high": 3}}, "must be whole numbers"),
        ({"a": {"type": "categorical", "values": []}}, "needs values that differ"),
        ({"a": {"type": "categorical", "values": ["x", "x"]}}, "needs values that differ"),
        ({"a": {"type": "categorical", "values": ["x"], "low": 1}}, "neither low, high nor log"),
        ({"a": {"type": "uniform", "low": 1, "high": 2}}, "'float', 'int' or 'categorical'"),
        ({"a": SPACE["kind"] | {"when": {"b": [1]}}}, "there is no parameter 'b'"),
        ({"a": SPACE["kind"] | {"when": {"b": [1]}}, "b": SPACE["kind"] | {"when": {"a": [1]}}}, "form a circle"),
        ({}, "search.space is empty"),
    ],
)
def test_a_contradiction_is_named(space: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        stated(space)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"command": ["sh", "a\0b"]}, "has a null character"),
        ({"env": {"COLOUR": "a\0b"}}, "has a null character"),
        ({"launcher": ["mpirun", "\0"]}, "has a null character"),
        ({"env": {"COLOUR=blue": ""}}, "env: 'COLOUR=blue' is not the name of an environment variable"),
    ],
)
def test_a_command_that_cannot_be_started_is_refused(recipe: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        stated(recipe={"command": ["sh", "train.sh"], **recipe})


def test_the_goal_follows_the_metric() -> None:
    for metric, goal in (("auc", "max"), ("log_loss", "min"), ("rmse", "min"), ("reward", "max")):
        result = judgement(settings(search={"metric": metric}), Target("binary", ("a", "b")))
        assert (result.metric, result.goal) == (metric, goal)
    assert judgement(settings(search={"metric": "reward", "goal": "min"}), Target("regression")).goal == "min"
    assert judgement(settings(), Target("classes", ("a", "b", "c"))).metric == "log_loss"
