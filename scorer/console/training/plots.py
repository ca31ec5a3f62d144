"""Pictures of a run of training, each the text of an SVG: the rungs of its search, what longer training brought, the rules of
its verdict, and both confusion matrices. Pure functions of the documents that it attests; "" where there is nothing to draw.
"""

from collections.abc import Iterator, Sequence

from scorer.console.training.documents import AttestedMatrix, ComparisonDocument, RuleResult, SearchDocument, SearchRung
from scorer.evaluation.svg import TONES, line, matrix, picture, short, text

WIDTH = 420  # pixels: a phone shows it whole, and still to be read
EDGE, STRIP, RULE = 14, 56, 40
HEIGHT, AXIS, SIDE, NAMES = 250, 60, 250, 140
MOST_CLASSES = 12
HOW = "true class by row, predicted by column"
Point = tuple[float, float]


def rungs(search: SearchDocument, unit: str = "trees") -> str:
    """Each rung's trials along their scores: a filled dot went on, an empty one was stopped, the last one's are the best's."""
    steps = [(rung, [one for one in rung.trials if one.score is not None]) for rung in _by_budget(search)]
    scores = [one.score for _, trials in steps for one in trials if one.score is not None]
    if not scores:
        return ""
    low, high = min(scores), max(scores)
    parts = []
    for k, (rung, trials) in enumerate(steps):
        top, last = k * STRIP, k == len(steps) - 1
        kept = set(rung.kept) if not last or search.best is None else {search.best.trial}
        went = "" if last else f", {len(kept):,} go{'es' if len(kept) == 1 else ''} on"
        plural = "" if len(rung.trials) == 1 else "s"
        parts.append(text(EDGE, top + 18, f"{rung.budget:,} {unit}: {len(rung.trials):,} trial{plural}{went}"))
        parts.append(line(EDGE, top + 36, WIDTH - EDGE, top + 36))
        ordered = sorted(trials, key=lambda one: one.trial in kept)  # those that went on are drawn over the others
        for one in ordered:
            x = _place(one.score or 0.0, low, high, EDGE, WIDTH - EDGE)
            parts.append(_dot(x, top + 36, "good" if one.trial in kept else "axis", filled=one.trial in kept))
    bottom = len(steps) * STRIP + 14
    parts.append(text(EDGE, bottom, f"{search.metric or 'score'} {low:.4g}", size=11, tone="muted"))
    parts.append(text(WIDTH - EDGE, bottom, f"{high:.4g}", anchor="end", size=11, tone="muted"))
    return picture(WIDTH, bottom + 10, parts)


def curve(search: SearchDocument, unit: str = "trees") -> str:
    """The learning curve of every trial, its score by how long it was trained; the best one's is drawn over the others."""
    steps = _by_budget(search)
    paths: dict[int, list[Point]] = {}
    for rung in steps:
        for one in rung.trials:
            if one.score is not None:
                paths.setdefault(one.trial, []).append((rung.budget, one.score))
    if not paths:
        return ""
    scores = [score for path in paths.values() for _, score in path]
    low, high, first, last = min(scores), max(scores), steps[0].budget, steps[-1].budget
    bottom = HEIGHT - 44

    def at(point: Point) -> Point:
        return _place(point[0], first, last, AXIS, WIDTH - EDGE), _place(point[1], low, high, bottom - 12, EDGE)

    parts = [line(AXIS, bottom, WIDTH - EDGE, bottom, "axis"), line(AXIS, EDGE, AXIS, bottom, "axis")]
    for budget in dict.fromkeys(rung.budget for rung in steps):
        x, _ = at((budget, low))
        anchor = "start" if budget == first and first != last else "end" if budget == last else "middle"
        parts += [line(x, EDGE, x, bottom), text(x, bottom + 16, f"{budget:,}", anchor=anchor, size=11)]
    for value in dict.fromkeys((low, high)):
        parts.append(text(AXIS - 6, at((first, value))[1] + 4, f"{value:.4g}", anchor="end", size=11))
    best = search.best.trial if search.best else None
    for trial in sorted(paths, key=lambda each: each == best):
        parts += _path([at(point) for point in paths[trial]], best=trial == best)
    parts.append(text(AXIS, HEIGHT - 8, f"{search.metric or 'score'} by {unit}", size=11, tone="muted"))
    return picture(WIDTH, HEIGHT, parts)


def matrix_of(found: AttestedMatrix) -> str:
    """One confusion matrix; the page says of whom."""
    names = found.names
    if len(names) > MOST_CLASSES:
        return picture(WIDTH, 40, [text(EDGE, 24, f"{len(names)} classes: too many to draw")])
    left = 24 + 6.4 * max(len(short(name)) for name in names)
    parts = [text(left, 14, HOW, size=11, tone="muted"), *matrix(names, names, found.counts, left, 42, SIDE)]
    return picture(round(left) + SIDE + EDGE, SIDE + 56, parts)


def matrices(comparison: ComparisonDocument) -> str:
    """The champion's confusion matrix beside the challenger's, of the same rows."""
    rivals = [("champion", comparison.champion), ("challenger", comparison.challenger)]
    told = [(f"{role} {one.version}", one.confusion_matrix) for role, one in rivals if one and one.confusion_matrix]
    across = NAMES + SIDE + EDGE
    parts: list[str] = []
    for k, (title, found) in enumerate(told):
        left, names = k * across + NAMES, found.names
        parts.append(text(left, 18, short(title, 36), weight="bold"))
        if len(names) > MOST_CLASSES:
            parts.append(text(left, 60, f"{len(names)} classes: too many to draw"))
        else:
            parts += [text(left, 38, HOW, size=11, tone="muted"), *matrix(names, names, found.counts, left, 66, SIDE)]
    return picture(across * len(told), SIDE + 80, parts) if told else ""


def rules(comparison: ComparisonDocument) -> str:
    """Each rule of the verdict: where its value lies from its bound, which is the line in the middle."""
    if not comparison.rules:
        return ""
    parts = []
    for k, rule in enumerate(comparison.rules):
        top, tone = k * RULE, "good" if rule.passed else "bad"
        numbers = [f"{value:.4g}" for value in (rule.value, rule.bound) if value is not None]
        parts.append(text(EDGE, top + 16, short(rule.name, 40), weight="bold"))
        said = f"{'passed' if rule.passed else 'failed'}{': ' if numbers else ''}{', bound '.join(numbers)}"
        parts.append(text(WIDTH - EDGE, top + 16, said, anchor="end", tone=tone))
        parts += _gauge(rule, EDGE, WIDTH - EDGE, top + 28)
    return picture(WIDTH, len(comparison.rules) * RULE + 8, parts)


def gauge(rule: RuleResult) -> str:
    """One rule, without words, 160 by 20 pixels: right of the line in the middle it is passed."""
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


def _place(value: float, low: float, high: float, start: float, end: float) -> float:
    """Where a value between `low` and `high` stands between two places; in the middle where all are the same."""
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
