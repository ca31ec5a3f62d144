"""The plot of an assessment: well-formed for any class names, and true to the counts."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from scorer.evaluation.assessment import Assessment, Quality
from scorer.evaluation.calibration_plot import MAX_CLASSES, plot
from scorer.evaluation.quality_metrics import Bin
from scorer.evaluation.quality_report import to_dict

SVG = "{http://www.w3.org/2000/svg}"


def parse_plot(*versions: Quality) -> ElementTree.Element:
    return ElementTree.fromstring(plot(Assessment(versions, None, 0, 0, 0, 0, 0)))


def texts(root: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def test_matrix_and_calibration_are_drawn() -> None:
    names = ("<on time>", "l\x00te & \u202e")
    bins = (Bin(0.0, 0.1, 30, 0.05, 0.0), Bin(0.9, 1.0, 10, 0.95, 1.0))
    svg = parse_plot(Quality("1.0.0@sha256:a", 40, names, names, ((30, 11), (22, 7)), 0.925, 0.9, 0.05, bins, 0.01))
    svg_texts = texts(svg)
    assert svg_texts[0] == "1.0.0: 40 events with a label, accuracy 0.925, AUC 0.9, Brier 0.05"
    assert [text for text in svg_texts if re.fullmatch(r"30|11|22|7", text)] == ["30", "11", "22", "7"]
    assert "<on time>" in svg_texts
    line = svg.find(f"{SVG}polyline")
    assert line is not None
    (x0, y0), (x1, y1) = (map(float, point.split(",")) for point in line.attrib["points"].split())
    assert x1 - x0 == pytest.approx(240 * 0.9, abs=0.1)
    assert y0 - y1 == pytest.approx(240, abs=0.1)
    radii = [float(dot.attrib["r"]) for dot in svg.iter(f"{SVG}circle")]
    assert radii[0] > radii[1]


def test_too_many_classes_are_reported_in_the_plot() -> None:
    names = tuple(f"class {k}" for k in range(MAX_CLASSES + 1))
    matrix = tuple((0,) * len(names) for _ in names)
    assert f"{MAX_CLASSES + 1} classes: see the table or --json" in texts(parse_plot(Quality("1", 1, names, names, matrix)))
    assert texts(parse_plot(Quality("1", 1)))[0] == "1: 1 events with a label"
    assert texts(parse_plot()) == []


def test_the_document_names_the_version_and_its_digest() -> None:
    document = to_dict(Assessment((Quality("1.0.0@sha256:a", 1),), None, 1, 1, 0, 0, 0))
    assert (document["versions"][0]["version"], document["versions"][0]["digest"]) == ("1.0.0", "sha256:a")
