"""Pictures of a run: well-formed whatever names are, true to the documents, and without scripts."""

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.unit.training.hold_out import HoldOut
from training.gate.verdict import judge
from training.pictures import comparison as compared
from training.pictures import search as searched
from training.pictures.axes import Frame, ticks
from training.settings import GateSection

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '<script>alert("&\x00\u202e")</script>'


def drawn(svg: str) -> ElementTree.Element:
    root = ElementTree.fromstring(svg)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {"svg", "rect", "text", "line", "circle", "polyline"}
    assert not re.search(r"(nan|inf)[^a-z]", " ".join(value for each in root.iter() for value in each.attrib.values()))
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def search(**changes: Any) -> dict[str, Any]:
    """Four trials, of which two go on, and one of those to the end."""
    scores: dict[int, list[float | None]] = {
        27: [0.80, 0.85, 0.90, 0.70],
        81: [None, 0.88, 0.91, None],
        243: [None, None, 0.93, None],
    }
    rungs = [
        {"budget": budget, "trials": [{"trial": at, "score": score} for at, score in enumerate(row) if score is not None]}
        for budget, row in scores.items()
    ]
    best = {"trial": 2, "parameters": {"learning_rate": 0.0123456, "num_leaves": 31}, "budget": 243, "score": 0.93}
    found = {"metric": "auc", "rungs": rungs, "trials": [{"trial": at, "parameters": {}} for at in range(4)], "best": best}
    return found | {"spent": 378, "unstopped": 972} | changes


def comparison(**changes: Any) -> dict[str, Any]:
    made = HoldOut(a_day=500)
    carrier = np.where(np.arange(made.count) % 2 == 0, "UA", "AA")
    evidence = made.evidence(made.scores(0.1), made.scores(0.3), slices={"carrier": carrier})
    return judge(evidence, GateSection(), 0.9, 1).to_dict() | changes


def test_every_trial_is_a_line_over_its_rungs_and_the_best_is_named() -> None:
    root = drawn(searched.rungs(search()))
    lines = [line.attrib["points"].split() for line in root.iter(f"{SVG}polyline")]
    assert sorted(map(len, lines)) == [1, 1, 2, 3]
    best = [tuple(map(float, point.split(","))) for point in lines[-1]]
    assert (len(best), best[0][1] > best[1][1] > best[2][1]) == (3, True)
    widths = [float(line.attrib["stroke-width"]) for line in root.iter(f"{SVG}polyline")]
    assert widths[-1] == max(widths)
    told = texts(root)
    assert {"4 trials; trial 2 is the best", "trial 2: 0.9300", "27", "81", "243", "best", "went on", "stopped"} <= set(told)
    assert "378 units of training in all, 61% less than without stopping" in told
    assert "learning_rate 0.01235, num_leaves 31" in told


def test_a_search_of_one_trial_and_equal_scores_is_drawn() -> None:
    one = {"budget": 5, "trials": [{"trial": 0, "score": 0.5}]}
    best = {"trial": 0, "parameters": {HOSTILE: HOSTILE}, "budget": 5, "score": 0.5}
    root = drawn(searched.rungs(search(rungs=[one], trials=[{"trial": 0}], best=best, spent=5, unstopped=5, metric=HOSTILE)))
    assert "5 units of training in all" in texts(root)
    assert any(text.startswith("<script>") for text in texts(root))


def test_the_learning_curve_has_the_scores_of_both_parts() -> None:
    points = [{"budget": 27 * at, "validation": 0.9 - 0.1 / at, "training": 0.95 - 0.1 / at} for at in range(1, 41)]
    root = drawn(searched.learning_curve(points, "auc", 3))
    assert [len(line.attrib["points"].split()) for line in root.iter(f"{SVG}polyline")] == [40, 40]
    assert {"How trial 3 learned", "validation 0.8975", "training 0.9475", "1,080"} <= set(texts(root))
    best = searched.of_best(search())
    assert best == [{"budget": budget, "validation": score} for budget, score in ((27, 0.90), (81, 0.91), (243, 0.93))]
    assert len(list(drawn(searched.learning_curve(best, "auc", 2)).iter(f"{SVG}polyline"))) == 1


def test_both_matrices_stand_beside_each_other() -> None:
    document = comparison()
    told = texts(drawn(compared.matrices(document)))
    for role in ("champion", "challenger"):
        assert f"{role} {role}" in told
        for row in document[role]["confusion_matrix"]["counts"]:
            assert {f"{count:,}" for count in row} <= set(told)
    alone = texts(drawn(compared.matrices(comparison(champion=None))))
    assert ("champion champion" in alone, "challenger challenger" in alone) == (False, True)


def test_every_rule_has_a_line_with_its_value_and_bound_and_where_there_is_one_its_interval() -> None:
    document = comparison()
    root = drawn(compared.rules(document))
    told = texts(root)
    assert {rule["name"] for rule in document["rules"]} <= set(told)
    assert told[0] == "Refused: run 0123456789ab"
    marks = [text for text in told if text in "\N{CHECK MARK}\N{MULTIPLICATION X}\N{EN DASH}" and text]
    assert marks.count("\N{MULTIPLICATION X}") == sum(not rule["passed"] for rule in document["rules"]) > 0
    intervals = [rule for rule in document["rules"] if "difference" in rule]
    dots = list(root.iter(f"{SVG}circle"))
    assert len(dots) == len(intervals) + len(document["slices"])
    assert len(document["slices"]) == 2
    auc = next(rule for rule in intervals if rule["name"] == "auc")
    assert (float(dots[0].attrib["cx"]) < 620, auc["difference"]["value"] < 0) == (True, True)


def test_a_first_model_has_rules_without_intervals() -> None:
    made = HoldOut(a_day=500)
    document = judge(made.evidence(None, made.scores(0.1)), GateSection(), 0.9, 1).to_dict()
    root = drawn(compared.rules(document))
    assert (texts(root)[0], list(root.iter(f"{SVG}circle"))) == ("Passed: run 0123456789ab", [])


@examples(max_examples=15)
@given(st.text(max_size=300))
def test_names_may_be_anything(name: str) -> None:
    document = HOSTILE_COMPARISON | {"run": name, "because": name}
    document["slices"] = [{**one, "field": name, "value": name} for one in document["slices"]]
    drawn(compared.rules(document))
    for role in ("champion", "challenger"):
        counts = {**document[role]["confusion_matrix"], "labels": [name, HOSTILE]}
        document[role] = {**document[role], "version": name, "confusion_matrix": counts}
    drawn(compared.matrices(document))


HOSTILE_COMPARISON = comparison()


@pytest.mark.parametrize(
    ("low", "high", "wanted"), [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (0.88, 0.93, [0.88, 0.89, 0.9, 0.91, 0.92, 0.93])]
)
def test_ticks_are_round_numbers(low: float, high: float, wanted: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(wanted)
    assert ticks(low, low) == [low]


@examples(max_examples=100)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_a_frame_has_room_for_its_values(values: list[float]) -> None:
    frame = Frame.around(10, 20, 300, 200, values)
    assert all(20 <= frame.y(value) <= 220 for value in values)
    assert len(ticks(frame.low, frame.high)) <= 11
