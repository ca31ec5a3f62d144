"""The plots of a training run as SVG texts: search rungs, learning curves, rules of the verdict and confusion matrices.

All functions are pure and take attested documents. A plot without data is an empty text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from scorer.console.training.documents import (
    AttestedMatrix,
    ComparisonDocument,
    ResidualHistogram,
    RuleResult,
    SearchDocument,
    SearchRung,
)
from scorer.evaluation.svg import DARKEST, TONES, escaped, line, matrix, picture, short, text

WIDTH = 420  # pixels: fits a phone's screen
EDGE = 14
STRIP = 56
RULE = 40
HEIGHT = 250
AXIS = 60
SIDE = 250
NAMES = 140
MAX_CLASSES = 12
MAX_POINTS = 200  # of one curve
MAX_MARKS = 12  # on an axis or a curve
WIDE = 860  # pixels: the width of a plot across the page
MATRIX_AXES = "true class by row, predicted by column"
Point = tuple[float, float]


def rungs(search: SearchDocument, unit: str = "trees") -> str:
    """Plot the trials of each rung by their scores, one dot for each trial.

    The dot is filled if the trial continues in the next rung. In the last rung, the dot of the best trial is filled.
    """
    steps = [(rung, [one for one in rung.trials if one.score is not None]) for rung in _by_budget(search)]
    scores = [one.score for _, trials in steps for one in trials if one.score is not None]
    if not scores:
        return ""
    low = min(scores)
    high = max(scores)
    parts = []
    for k, (rung, trials) in enumerate(steps):
        top = k * STRIP
        last = k == len(steps) - 1
        continued = set(rung.kept) if not last or search.best is None else {search.best.trial}
        result = "" if last else f", {len(continued):,} continue{'s' if len(continued) == 1 else ''}"
        plural = "" if len(rung.trials) == 1 else "s"
        parts.append(text(EDGE, top + 18, f"{rung.budget:,} {unit}: {len(rung.trials):,} trial{plural}{result}"))
        parts.append(line(EDGE, top + 36, WIDTH - EDGE, top + 36))
        ordered = sorted(trials, key=lambda one: one.trial in continued)  # draw trials that continued on top
        for one in ordered:
            x = _scale(one.score or 0.0, low, high, EDGE, WIDTH - EDGE)
            parts.append(_dot(x, top + 36, "good" if one.trial in continued else "axis", filled=one.trial in continued))
    bottom = len(steps) * STRIP + 14
    parts.append(text(EDGE, bottom, f"{search.metric or 'score'} {low:.4g}", size=11, tone="muted"))
    parts.append(text(WIDTH - EDGE, bottom, f"{high:.4g}", anchor="end", size=11, tone="muted"))
    return picture(WIDTH, bottom + 10, parts)


def curve(search: SearchDocument, unit: str = "trees") -> str:
    """Plot the learning curve of each trial, the best trial on top of the others."""
    paths: dict[int, list[Point]] = {}
    for rung in _by_budget(search):
        for one in rung.trials:
            if one.score is not None:
                paths.setdefault(one.trial, []).append((rung.budget, one.score))
    return curves(paths, search.best.trial if search.best else None, search.metric, unit)


def curves(paths: Mapping[int, Sequence[Point]], best: int | None, metric: str, unit: str = "trees") -> str:
    """Plot the values of a metric by budget for each trial, the trial `best` on top of the others.

    Long curves are thinned to MAX_POINTS points. The axis has marks at the budgets, if they are few.
    """
    paths = {trial: _thinned(path) for trial, path in paths.items() if path}
    if not paths:
        return ""
    scores = [score for path in paths.values() for _, score in path]
    low = min(scores)
    high = max(scores)
    budgets = sorted({round(budget) for path in paths.values() for budget, _ in path})
    first = budgets[0]
    last = budgets[-1]
    bottom = HEIGHT - 44

    def at(point: Point) -> Point:
        return _scale(point[0], first, last, AXIS, WIDTH - EDGE), _scale(point[1], low, high, bottom - 12, EDGE)

    parts = [line(AXIS, bottom, WIDTH - EDGE, bottom, "axis"), line(AXIS, EDGE, AXIS, bottom, "axis")]
    for budget in budgets if len(budgets) <= MAX_MARKS else (first, last):
        x, _ = at((budget, low))
        anchor = "end" if budget == last else "middle"
        if budget == first and first != last:
            anchor = "start"
        parts += [line(x, EDGE, x, bottom), text(x, bottom + 16, f"{budget:,}", anchor=anchor, size=11)]
    for value in dict.fromkeys((low, high)):
        parts.append(text(AXIS - 6, at((first, value))[1] + 4, f"{value:.4g}", anchor="end", size=11))
    for trial in sorted(paths, key=lambda each: each == best):
        parts += _path([at(point) for point in paths[trial]], best=trial == best)
    parts.append(text(AXIS, HEIGHT - 8, f"{short(metric, 40) or 'score'} by {unit}", size=11, tone="muted"))
    return picture(WIDTH, HEIGHT, parts)


@dataclass(frozen=True, slots=True)
class VersionFigure:
    """A metric's value for one version. If neither `promoted` nor `refused` is True, the version is not decided yet."""

    name: str
    value: float
    promoted: bool
    refused: bool


def versions(figures: Sequence[VersionFigure], metric: str) -> str:
    """Plot the value of a metric for each version, in the order of training. A line connects the promoted versions."""
    if not figures:
        return ""
    low = min(figure.value for figure in figures)
    high = max(figure.value for figure in figures)
    bottom = HEIGHT - 44

    def at(number: int) -> Point:
        x = _scale(number, 0, len(figures) - 1, AXIS + 10, WIDE - EDGE - 6)
        return x, _scale(figures[number].value, low, high, bottom - 12, EDGE)

    parts = [line(AXIS, bottom, WIDE - EDGE, bottom, "axis"), line(AXIS, EDGE, AXIS, bottom, "axis")]
    for value in dict.fromkeys((low, high)):
        y = _scale(value, low, high, bottom - 12, EDGE)
        parts += [line(AXIS, y, WIDE - EDGE, y), text(AXIS - 6, y + 4, f"{value:.4g}", anchor="end", size=11)]
    promoted = [at(number) for number, figure in enumerate(figures) if figure.promoted]
    if len(promoted) > 1:
        parts.append(_polyline(promoted, "good", 2))
    for number, figure in enumerate(figures):
        x, y = at(number)
        tone = "good" if figure.promoted else "bad" if figure.refused else "axis"
        title = f"{short(figure.name, 40)}: {metric} {figure.value:.6g}"
        parts.append(_dot(x, y, tone, filled=figure.promoted, title=title))
    parts.append(text(AXIS, bottom + 16, short(figures[0].name, 30), size=11))
    if len(figures) > 1:
        parts.append(text(WIDE - EDGE, bottom + 16, short(figures[-1].name, 30), anchor="end", size=11))
    parts.append(text(AXIS, HEIGHT - 8, f"{short(metric, 40)} by version, on its own hold-out rows", size=11, tone="muted"))
    return picture(WIDE, HEIGHT, parts)


def residuals(histogram: ResidualHistogram) -> str:
    """Plot the residuals of a regression (score minus label) as a histogram, with a line at 0."""
    most = max(histogram.counts)
    if not most:
        return ""
    bottom = HEIGHT - 44
    low = histogram.edges[0]
    high = histogram.edges[-1]

    def x(value: float) -> float:
        return _scale(value, low, high, AXIS, WIDTH - EDGE)

    parts = []
    for count, start, end in zip(histogram.counts, histogram.edges, histogram.edges[1:], strict=False):
        tall = (bottom - EDGE) * count / most
        width = max(x(end) - x(start) - 1, 0.5)
        place = f'x="{x(start):.1f}" y="{bottom - tall:.1f}" width="{width:.1f}" height="{tall:.1f}"'
        parts.append(f'<rect {place} class="cell" fill="{TONES["good"]}" fill-opacity="{DARKEST}"/>')
    parts.append(line(AXIS, bottom, WIDTH - EDGE, bottom, "axis"))
    if low < 0 < high:
        parts += [line(x(0.0), EDGE, x(0.0), bottom, "ink"), text(x(0.0), bottom + 16, "0", anchor="middle", size=11)]
    parts += [
        text(AXIS, bottom + 16, f"{low:.4g}", size=11),
        text(WIDTH - EDGE, bottom + 16, f"{high:.4g}", anchor="end", size=11),
        text(AXIS - 6, EDGE + 8, f"{most:,}", anchor="end", size=11),
        text(AXIS, HEIGHT - 8, "rows by residual: score minus label", size=11, tone="muted"),
    ]
    return picture(WIDTH, HEIGHT, parts)


def matrix_of(confusion: AttestedMatrix) -> str:
    """Plot one confusion matrix, without a title."""
    names = confusion.names
    if len(names) > MAX_CLASSES:
        return picture(WIDTH, 40, [text(EDGE, 24, f"{len(names)} classes: too many to draw")])
    left = 24 + 6.4 * max(len(short(name)) for name in names)
    parts = [text(left, 14, MATRIX_AXES, size=11, tone="muted"), *matrix(names, names, confusion.counts, left, 42, SIDE)]
    return picture(round(left) + SIDE + EDGE, SIDE + 56, parts)


def matrices(comparison: ComparisonDocument) -> str:
    """Plot the confusion matrices of champion and challenger on the same rows."""
    versions = [("champion", comparison.champion), ("challenger", comparison.challenger)]
    titled = [(f"{role} {one.version}", one.confusion_matrix) for role, one in versions if one and one.confusion_matrix]
    across = NAMES + SIDE + EDGE
    parts: list[str] = []
    for k, (title, confusion) in enumerate(titled):
        left = k * across + NAMES
        names = confusion.names
        parts.append(text(left, 18, short(title, 36), weight="bold"))
        if len(names) > MAX_CLASSES:
            parts.append(text(left, 60, f"{len(names)} classes: too many to draw"))
        else:
            parts += [
                text(left, 38, MATRIX_AXES, size=11, tone="muted"),
                *matrix(names, names, confusion.counts, left, 66, SIDE),
            ]
    return picture(across * len(titled), SIDE + 80, parts) if titled else ""


def rules(comparison: ComparisonDocument) -> str:
    """Plot each rule of the verdict: its value relative to its bound, which is the line in the middle."""
    if not comparison.rules:
        return ""
    parts = []
    for k, rule in enumerate(comparison.rules):
        top = k * RULE
        tone = "good" if rule.passed else "bad"
        numbers = [f"{value:.4g}" for value in (rule.value, rule.bound) if value is not None]
        parts.append(text(EDGE, top + 16, short(rule.name, 40), weight="bold"))
        label = f"{'passed' if rule.passed else 'failed'}{': ' if numbers else ''}{', bound '.join(numbers)}"
        parts.append(text(WIDTH - EDGE, top + 16, label, anchor="end", tone=tone))
        parts += _gauge(rule, EDGE, WIDTH - EDGE, top + 28)
    return picture(WIDTH, len(comparison.rules) * RULE + 8, parts)


def gauge(rule: RuleResult) -> str:
    """Plot one rule of the verdict without text, 160 by 20 pixels. If the rule passed, its dot is right of the middle."""
    return picture(160, 20, _gauge(rule, 6, 154, 10))


def _gauge(rule: RuleResult, left: float, right: float, y: float) -> Iterator[str]:
    middle = (left + right) / 2
    yield line(left, y, right, y, width=2)
    yield line(middle, y - 7, middle, y + 7, "ink", 2)
    if rule.value is None or rule.bound is None:
        return
    far = abs(rule.value - rule.bound) / max(abs(rule.value), abs(rule.bound), 1e-12) / 2
    reach = max(min(far, 1.0) * (right - left) / 2 - 6, 6.0)
    yield _dot(middle + (reach if rule.passed else -reach), y, "good" if rule.passed else "bad", filled=True)


def _by_budget(search: SearchDocument) -> Sequence[SearchRung]:
    return sorted(search.rungs, key=lambda rung: rung.budget)


def _scale(value: float, low: float, high: float, start: float, end: float) -> float:
    """Map a value from the range [low, high] to [start, end]; to the middle of [start, end] if low equals high."""
    return (start + end) / 2 if high <= low else start + (end - start) * (value - low) / (high - low)


def _thinned(path: Sequence[Point]) -> Sequence[Point]:
    """Return at most MAX_POINTS + 1 points of a curve, among them the last one."""
    step = -(-len(path) // MAX_POINTS)
    return path if step <= 1 else [*path[:-1:step], path[-1]]


def _dot(x: float, y: float, tone: str, *, filled: bool, title: str = "") -> str:
    ink = TONES[tone] if filled else TONES["none"]
    kind = tone if filled else f"stroke hollow {tone}"
    place = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" class="{kind}" fill="{ink}" stroke="{TONES[tone]}"'
    return f"{place}><title>{escaped(title)}</title></circle>" if title else f"{place}/>"


def _path(points: Sequence[Point], *, best: bool) -> list[str]:
    tone, width = ("good", 2.5) if best else ("axis", 1)
    dots = points if len(points) <= MAX_MARKS else points[-1:]
    return [_polyline(points, tone, width), *(_dot(x, y, tone, filled=best) for x, y in dots)]


def _polyline(points: Sequence[Point], tone: str, width: float) -> str:
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    ink = f'fill="none" stroke="{TONES[tone]}" stroke-width="{width}"'
    return f'<polyline points="{drawn}" class="stroke hollow {tone}" {ink}/>'
