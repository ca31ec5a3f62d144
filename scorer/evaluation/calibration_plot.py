"""Plot an assessment as SVG: the confusion matrix and the calibration of each version, one version per row. Pure."""

from collections.abc import Iterator

from scorer.evaluation.assessment import Assessment, Quality
from scorer.evaluation.svg import TONES, matrix, picture, text

# pixels
SIDE = 240
GAP = 60
NAMES = 130
TOP = 64
ROW = SIDE + TOP + GAP
WIDTH = 2 * (NAMES + SIDE) + GAP
MAX_CLASSES = 12  # the largest number of classes for which a matrix is drawn


def plot(assessment: Assessment) -> str:
    """Return the plot as SVG."""
    rows = [part for k, each in enumerate(assessment.versions) for part in _version(each, k * ROW)]
    return picture(WIDTH, max(1, len(assessment.versions)) * ROW, rows)


def _version(each: Quality, top: int) -> Iterator[str]:
    version = each.version.partition("@")[0]
    figures = (("accuracy", each.accuracy), ("AUC", each.auc), ("Brier", each.brier), ("RMSE", each.root_mean_square_error))
    listed = ", ".join(f"{name} {value:.4g}" for name, value in figures if value is not None)
    yield text(
        10, top + 20, f"{version}: {each.labels:,} events with a label" + (f", {listed}" if listed else ""), weight="bold"
    )
    if each.matrix and max(len(each.rows), len(each.columns)) <= MAX_CLASSES:
        yield text(NAMES, top + TOP - 24, "label by row, decision by column", size=11)
        yield from matrix(each.rows, each.columns, each.matrix, NAMES, top + TOP, SIDE)
    elif each.matrix:
        yield text(NAMES, top + TOP + 20, f"{len(each.rows)} classes: see the table or --json")
    if each.calibration:
        yield from _calibration(each, 2 * NAMES + SIDE + GAP, top + TOP)


def _calibration(each: Quality, left: int, top: int) -> Iterator[str]:
    """Yield the parts of the calibration plot: a dot for each bin, at its mean score and its share of positive labels.

    The area of a dot is the bin's share of the events.
    """
    bottom = top + SIDE
    ink = TONES["mark"]
    yield text(left, top - 24, "observed share by mean score", size=11)
    yield f'<rect x="{left}" y="{top}" width="{SIDE}" height="{SIDE}" fill="none" stroke="{TONES["line"]}"/>'
    diagonal = f'x1="{left}" y1="{bottom}" x2="{left + SIDE}" y2="{top}"'
    yield f'<line {diagonal} stroke="{TONES["axis"]}" stroke-dasharray="4 4"/>'
    points = [(left + SIDE * each_bin.score, bottom - SIDE * each_bin.true, each_bin.count) for each_bin in each.calibration]
    yield f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)}" fill="none" stroke="{ink}"/>'
    for x, y, count in points:
        radius = 2 + 10 * (count / each.labels) ** 0.5
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{ink}" fill-opacity="0.6"/>'
    for share in (0.0, 0.5, 1.0):
        yield text(left + SIDE * share, bottom + 16, f"{share:g}", anchor="middle", size=11)
        yield text(left - 6, bottom - SIDE * share + 4, f"{share:g}", anchor="end", size=11)
