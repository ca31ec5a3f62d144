"""An assessment as an SVG: the confusion matrix and the calibration of each version, one version a row. Pure."""

from collections.abc import Iterator
from xml.sax.saxutils import escape

from scorer.rollout.labels.assessment import Assessment, Quality

SIDE, GAP, NAMES, TOP = 240, 60, 130, 64  # pixels
ROW = SIDE + TOP + GAP
WIDTH = 2 * (NAMES + SIDE) + GAP
MOST = 12  # classes that a matrix is drawn of
INK, FILL, LINE = "#17212b", "#0b6e4f", "#b3541e"


def draw(found: Assessment) -> str:
    """The text of the SVG."""
    height = max(1, len(found.versions)) * ROW
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">'
    rows = [line for k, each in enumerate(found.versions) for line in _version(each, k * ROW)]
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>', *rows, "</svg>", ""])


def _version(each: Quality, top: int) -> Iterator[str]:
    version = each.version.partition("@")[0]
    figures = (("accuracy", each.accuracy), ("AUC", each.auc), ("Brier", each.brier), ("RMSE", each.root_mean_square_error))
    told = ", ".join(f"{name} {value:.4g}" for name, value in figures if value is not None)
    yield _text(10, top + 20, f"{version}: {each.labels:,} events with a label" + (f", {told}" if told else ""), weight="bold")
    if each.matrix and max(len(each.rows), len(each.columns)) <= MOST:
        yield from _matrix(each, NAMES, top + TOP)
    elif each.matrix:
        yield _text(NAMES, top + TOP + 20, f"{len(each.rows)} classes: see the table or --json")
    if each.calibration:
        yield from _calibration(each, 2 * NAMES + SIDE + GAP, top + TOP)


def _matrix(each: Quality, left: int, top: int) -> Iterator[str]:
    """Labels by row, decisions by column; the darker, the larger the share of its row."""
    wide, high = SIDE / len(each.columns), SIDE / len(each.rows)
    yield _text(left, top - 24, "label by row, decision by column", size=11)
    for j, name in enumerate(each.columns):
        yield _text(left + (j + 0.5) * wide, top - 6, _short(name), anchor="middle", size=11)
    for i, (name, counts) in enumerate(zip(each.rows, each.matrix, strict=True)):
        yield _text(left - 6, top + (i + 0.5) * high + 4, _short(name), anchor="end", size=11)
        for j, count in enumerate(counts):
            share = count / max(1, sum(counts))
            x, y = left + j * wide, top + i * high
            place = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"'
            yield f'<rect {place} fill="{FILL}" fill-opacity="{share:.3f}" stroke="#d0d7de"/>'
            ink = "#ffffff" if share > 0.5 else INK
            yield _text(x + wide / 2, y + high / 2 + 4, f"{count:,}", anchor="middle", ink=ink)


def _calibration(each: Quality, left: int, top: int) -> Iterator[str]:
    """The share that came true by mean score, and a dot whose area is the share of the events."""
    bottom = top + SIDE
    yield _text(left, top - 24, "share that came true, by score", size=11)
    yield f'<rect x="{left}" y="{top}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#d0d7de"/>'
    yield f'<line x1="{left}" y1="{bottom}" x2="{left + SIDE}" y2="{top}" stroke="#8b98a5" stroke-dasharray="4 4"/>'
    points = [(left + SIDE * one.score, bottom - SIDE * one.true, one.count) for one in each.calibration]
    yield f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)}" fill="none" stroke="{LINE}"/>'
    for x, y, count in points:
        radius = 2 + 10 * (count / each.labels) ** 0.5
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{LINE}" fill-opacity="0.6"/>'
    for share in (0.0, 0.5, 1.0):
        yield _text(left + SIDE * share, bottom + 16, f"{share:g}", anchor="middle", size=11)
        yield _text(left - 6, bottom - SIDE * share + 4, f"{share:g}", anchor="end", size=11)


def _short(name: str) -> str:
    return name if len(name) <= 18 else f"{name[:17]}\N{HORIZONTAL ELLIPSIS}"


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", size: int = 12, ink: str = INK
) -> str:
    style = f'text-anchor="{anchor}" font-weight="{weight}" font-size="{size}" fill="{ink}"'
    plain = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(plain)}</text>'
