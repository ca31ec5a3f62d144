"""The plots of a run: well-formed for any names, and true to the numbers."""

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from scorer.console.training import plots
from scorer.console.training.documents import (
    AttestedMatrix,
    ComparisonDocument,
    EvaluationDocument,
    ResidualHistogram,
    RuleResult,
    SearchDocument,
    read,
)
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
    svg = plots.rungs(search())
    assert texts(svg)[:3] == ["27 trees: 16 trials, 5 continue", "81 trees: 5 trials, 1 continues", "243 trees: 1 trial"]
    circles = dots(svg)
    assert [sum(filled for _, y, filled in circles if y == height) for height in (36, 92, 148)] == [5, 1, 1]
    assert len(circles) == 16 + 5 + 1
    stopped = max(x for x, y, filled in circles if y == 36 and not filled)
    assert stopped <= min(x for x, y, filled in circles if y == 36 and filled)  # the trials with the best scores continue
    assert texts(plots.rungs(search(metric=HOSTILE), "epochs"))[0].startswith("27 epochs")


def test_learning_curves_rise_with_the_score() -> None:
    svg = ElementTree.fromstring(plots.curve(search()))
    *_, best = svg.iter(f"{SVG}polyline")
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
    assert not any(text.startswith("champion") for text in texts(plots.matrices(first)))
    assert plots.matrices(read(trained.comparison(1, DIGEST, challenger={}), ComparisonDocument)) == ""


def test_classes_of_any_name_and_number() -> None:
    assert '<script>"&\ufffd\ufffd' in texts(plots.matrix_of(AttestedMatrix([HOSTILE, 1], [[1, 2], [0, 0]])))
    matrix = AttestedMatrix(list(range(13)), [[1] * 13] * 13)
    assert texts(plots.matrix_of(matrix)) == ["13 classes: too many to draw"]


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


def test_long_curves_are_thinned_and_end_at_their_last_point() -> None:
    path = [(float(step), step / 10_000) for step in range(10_001)]
    svg = plots.curves({0: path, 1: path[:3], 2: []}, 0, HOSTILE, "epochs")
    first, second = ElementTree.fromstring(svg).iter(f"{SVG}polyline")
    lengths = sorted(len(line.attrib["points"].split()) for line in (first, second))
    assert lengths[0] == 3
    assert 100 < lengths[1] <= plots.MAX_POINTS + 1
    assert max(x for x, _, _ in dots(svg)) == plots.WIDTH - plots.EDGE
    assert plots.curves({}, None, "auc") == plots.curves({1: []}, None, "auc") == ""


def test_versions_are_drawn_in_their_order_and_the_promoted_ones_are_connected() -> None:
    figures = [
        plots.VersionFigure("a", 0.8, promoted=True, refused=False),
        plots.VersionFigure(HOSTILE, 0.7, promoted=False, refused=True),
        plots.VersionFigure("c", 0.9, promoted=True, refused=False),
    ]
    svg = plots.versions(figures, HOSTILE)
    circles = dots(svg)
    assert [filled for *_, filled in circles] == [True, False, True]
    assert [x for x, *_ in circles] == sorted(x for x, *_ in circles)
    (_, low, _), (_, lowest, _), (_, high, _) = circles
    assert high < low < lowest  # a larger value is higher on the page
    (line,) = ElementTree.fromstring(svg).iter(f"{SVG}polyline")
    assert len(line.attrib["points"].split()) == 2
    assert plots.versions([], "auc") == ""
    assert dots(plots.versions(figures[:1], "auc"))


def test_residuals_are_bars_in_proportion_to_their_counts() -> None:
    svg = plots.residuals(ResidualHistogram([-2.0, -1.0, 0.0, 3.0], [5, 10, 0]))
    bars = [bar for bar in ElementTree.fromstring(svg).iter(f"{SVG}rect") if bar.attrib["class"] == "cell"]
    heights = [float(bar.attrib["height"]) for bar in bars]
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.2)
    assert heights[2] == 0
    assert {"0", "-2", "3", "10"} <= set(texts(svg))
    assert plots.residuals(ResidualHistogram([0.0, 1.0], [0])) == ""
    for wrong in ({"edges": [0, 1], "counts": [1, 2]}, {"edges": [1, 0], "counts": [1]}):
        with pytest.raises(ValueError, match="ascending numbers"):
            read({"dataset": "d", "residuals": wrong}, EvaluationDocument)
