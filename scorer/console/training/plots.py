"""The plots of a training run as SVG texts: search rungs, learning curves, rules and confusion matrices.

All functions are pure and take attested documents. A plot without data is an empty text.
"""

from collections.abc import Iterator, Sequence

from scorer.console.training.documents import AttestedMatrix, ComparisonDocument, RuleResult, SearchDocument, SearchRung
from scorer.evaluation.svg import TONES, line, matrix, picture, short, text

WIDTH = 420  # pixels: fits a phone's screen
EDGE = 14
STRIP = 56
RULE = 40
HEIGHT = 250
AXIS = 60
SIDE = 250
NAMES = 140
MAX_CLASSES = 12
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
    steps = _by_budget(search)
    paths: dict[int, list[Point]] = {}
    for rung in steps:
        for one in rung.trials:
            if one.score is not None:
                paths.setdefault(one.trial, []).append((rung.budget, one.score))
    if not paths:
        return ""
    scores = [score for path in paths.values() for _, score in path]
    low = min(scores)
    high = max(scores)
    first = steps[0].budget
    last = steps[-1].budget
    bottom = HEIGHT - 44

    def at(point: Point) -> Point:
        return _scale(point[0], first, last, AXIS, WIDTH - EDGE), _scale(point[1], low, high, bottom - 12, EDGE)

    parts = [line(AXIS, bottom, WIDTH - EDGE, bottom, "axis"), line(AXIS, EDGE, AXIS, bottom, "axis")]
    for budget in dict.fromkeys(rung.budget for rung in steps):
        x, _ = at((budget, low))
        anchor = "end" if budget == last else "middle"
        if budget == first and first != last:
            anchor = "start"
        parts += [line(x, EDGE, x, bottom), text(x, bottom + 16, f"{budget:,}", anchor=anchor, size=11)]
    for value in dict.fromkeys((low, high)):
        parts.append(text(AXIS - 6, at((first, value))[1] + 4, f"{value:.4g}", anchor="end", size=11))
    best = search.best.trial if search.best else None
    for trial in sorted(paths, key=lambda each: each == best):
        parts += _path([at(point) for point in paths[trial]], best=trial == best)
    parts.append(text(AXIS, HEIGHT - 8, f"{search.metric or 'score'} by {unit}", size=11, tone="muted"))
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
    """Plot one rule without text, 160 by 20 pixels. A dot to the right of the middle means that the rule passed."""
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


def _dot(x: float, y: float, tone: str, *, filled: bool) -> str:
    ink = TONES[tone] if filled else TONES["none"]
    kind = tone if filled else f"stroke hollow {tone}"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" class="{kind}" fill="{ink}" stroke="{TONES[tone]}"/>'


def _path(points: Sequence[Point], *, best: bool) -> list[str]:
    tone, width = ("good", 2.5) if best else ("axis", 1)
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    ink = f'fill="none" stroke="{TONES[tone]}" stroke-width="{width}"'
    return [
        f'<polyline points="{drawn}" class="stroke hollow {tone}" {ink}/>',
        *(_dot(x, y, tone, filled=best) for x, y in points),
    ]
