"""The plots of a run: well-formed for any names, and true to the numbers."""

import xml.etree.ElementTree as ElementTree
from typing import Any

from scorer.console.training import plots
from scorer.console.training.documents import AttestedMatrix, ComparisonDocument, RuleResult, SearchDocument, read
from tests.support import trained

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '<script>"&\x00\u202e'
DIGEST, CHAMPION = "sha256:" + "c" * 64, ("1.0.0", "sha256:" + "b" * 64)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def dots(svg: str) -> list[tuple[float, float, bool]]:
    """Return position and fill of each circle."""
    circles = ElementTree.fromstring(svg).iter(f"{SVG}circle")
    return [(float(circle.attrib["cx"]), float(circle.attrib["cy"]), circle.attrib["fill"] != "none") for circle in circles]


def search(**changed: Any) -> SearchDocument:
    return read(trained.search() | changed, SearchDocument)


def test_rungs_show_the_trials_that_continued() -> None:
    drawn = plots.rungs(search())
    assert texts(drawn)[:3] == ["27 trees: 16 trials, 5 continue", "81 trees: 5 trials, 1 continues", "243 trees: 1 trial"]
    circles = dots(drawn)
    assert [sum(filled for _, y, filled in circles if y == height) for height in (36, 92, 148)] == [5, 1, 1]
    assert len(circles) == 16 + 5 + 1
    stopped = max(x for x, y, filled in circles if y == 36 and not filled)
    assert stopped <= min(x for x, y, filled in circles if y == 36 and filled)  # the trials with the best scores continue
    assert texts(plots.rungs(search(metric=HOSTILE), "epochs"))[0].startswith("27 epochs")


def test_learning_curves_rise_with_the_score() -> None:
    drawn = ElementTree.fromstring(plots.curve(search()))
    *_, best = drawn.iter(f"{SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in best.attrib["points"].split()]
    assert len(points) == 3
    assert best.attrib["stroke-width"] == "2.5"
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert points[0][1] > points[1][1] > points[2][1]  # y goes down
    labels = texts(plots.curve(search()))
    assert {"27", "81", "243", "auc by trees"} <= set(labels)


def test_one_rung_and_no_rung() -> None:
    search_document = search(rungs=[{"budget": 27, "trials": [{"trial": 0, "score": 0.5}], "kept": [0]}], best=None)
    assert len(dots(plots.rungs(search_document))) == len(dots(plots.curve(search_document))) == 1
    for nothing in (search(rungs=[]), search(rungs=[{"budget": 27, "trials": [{"trial": 0, "score": None}]}])):
        assert plots.rungs(nothing) == plots.curve(nothing) == ""


def test_both_matrices_are_side_by_side() -> None:
    comparison = read(trained.comparison(1, DIGEST, CHAMPION), ComparisonDocument)
    labels = texts(plots.matrices(comparison))
    assert labels.index("champion 1.0.0") < labels.index(f"challenger {trained.version(1)}")
    assert "7,410" in labels
    assert "7,535" in labels
    first = read(trained.comparison(1, DIGEST), ComparisonDocument)
    assert not any(each.startswith("champion") for each in texts(plots.matrices(first)))
    assert plots.matrices(read(trained.comparison(1, DIGEST, challenger={}), ComparisonDocument)) == ""


def test_classes_of_any_name_and_number() -> None:
    assert '<script>"&\ufffd\ufffd' in texts(plots.matrix_of(AttestedMatrix([HOSTILE, 1], [[1, 2], [0, 0]])))
    many = AttestedMatrix(list(range(13)), [[1] * 13] * 13)
    assert texts(plots.matrix_of(many)) == ["13 classes: too many to draw"]


def test_passed_rule_is_right_of_its_bound() -> None:
    passed, broken = RuleResult("a", True, 0.98, 0.9), RuleResult("b", False, -0.0079, -0.002)
    ((right, _, _),), ((left, _, _),) = dots(plots.gauge(passed)), dots(plots.gauge(broken))
    assert left < 80 < right
    assert dots(plots.gauge(RuleResult("c", True))) == []
    far = read(
        trained.comparison(1, DIGEST, rules=[{"name": HOSTILE, "passed": False, "value": -1e15, "bound": 0}]),
        ComparisonDocument,
    )
    assert "failed: -1e+15, bound 0" in texts(plots.rules(far))
    assert all(0 < x < plots.WIDTH for x, _, _ in dots(plots.rules(far)))
    assert plots.rules(read(trained.comparison(1, DIGEST, rules=[]), ComparisonDocument)) == ""
