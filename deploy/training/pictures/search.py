"""The search as SVG: each trial's score by rung, and how the best one learned. Pure; the document is that of the search."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scorer.rollout.drawing import FAINT, FILL, INK, LINE, document, line, short, text
from training.pictures.axes import Frame

WIDTH, HEIGHT = 760, 450
LEFT, TOP, RIGHT, BOTTOM = 80, 108, 120, 62  # pixels around the plot
STOPPED = "#8b98a5"
BUDGET = "trained for (trees, or epochs of a network)"
Document = Mapping[str, Any]
Point = tuple[int, float]


def rungs(search: Document) -> str:
    """Each trial is a line over the rungs that it was trained to. The best is strong and named, those that went on after their
    first rung are in colour, those that were stopped there are faint."""
    stops, best = search["rungs"], search["best"]["trial"]
    scores = [{one["trial"]: one["score"] for one in rung["trials"]} for rung in stops]
    frame = _frame([score for rung in scores for score in rung.values()])
    lines = [*_heading(_title(search), _spent(search)), *frame.lines(search["metric"])]
    lines += frame.stops((f"{rung['budget']:,}" for rung in stops), BUDGET)
    for trial in sorted(
        {trial for rung in scores for trial in rung}, key=lambda trial: (trial == best, trial in scores[-1], trial)
    ):
        points = [(at, rung[trial]) for at, rung in enumerate(scores) if trial in rung]
        lines += _line(frame, points, len(stops), _look(trial == best, len(points) > 1))
    lines += [*_named(frame, search["best"], len(stops)), *_legend()]
    return document(WIDTH, HEIGHT, lines)


def learning_curve(points: Sequence[Document], metric: str, trial: int) -> str:
    """How a trial learned: `points` have a `budget`, and the `validation` score there, perhaps that of the `training` rows."""
    series = {name: [(at, one[name]) for at, one in enumerate(points) if one.get(name) is not None] for name in CURVES}
    frame = _frame([score for mine in series.values() for _, score in mine])
    said = "the gap between the two is what it learned by heart" if series["training"] else "on rows that it was not trained on"
    lines = [*_heading(f"How trial {trial} learned", said), *frame.lines(metric)]
    lines += frame.stops(_few([f"{one['budget']:,}" for one in points]), BUDGET)
    for name, colour in CURVES.items():
        if series[name]:
            lines += _line(frame, series[name], len(points), (colour, 2.5, 1.0))
            at, score = series[name][-1]
            lines.append(text(frame.x(at, len(points)) + 10, frame.y(score) + 4, f"{name} {score:.4f}", size=11, ink=colour))
    return document(WIDTH, HEIGHT, lines)


CURVES = {"validation": FILL, "training": LINE}


def of_best(search: Document) -> list[Document]:
    """The points of the best trial, as the rungs have them."""
    best = search["best"]["trial"]
    found = [(rung["budget"], one) for rung in search["rungs"] for one in rung["trials"] if one["trial"] == best]
    return [{"budget": budget, "validation": one["score"]} for budget, one in found]


def _title(search: Document) -> str:
    return f"{len(search['trials']):,} trials; trial {search['best']['trial']} is the best"


def _spent(search: Document) -> str:
    spent, unstopped = search["spent"], search["unstopped"]
    saved = f", {1 - spent / unstopped:.0%} less than without stopping" if spent < unstopped else ""
    return f"{spent:,} units of training in all{saved}"


def _heading(title: str, said: str) -> Iterator[str]:
    yield text(20, 30, title, weight="bold", size=15)
    yield text(20, 50, said, ink=FAINT)


def _frame(scores: Sequence[float]) -> Frame:
    return Frame.around(LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM, scores)


def _look(best: bool, went_on: bool) -> tuple[str, float, float]:
    """Colour, width and opacity of a line."""
    if best:
        return LINE, 3.0, 1.0
    return (FILL, 1.8, 0.85) if went_on else (STOPPED, 1.2, 0.8)


def _line(frame: Frame, points: Sequence[Point], of: int, look: tuple[str, float, float]) -> Iterator[str]:
    """A line through the points, with a dot at each."""
    colour, width, opacity = look
    places = [(frame.x(at, of), frame.y(score)) for at, score in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-opacity="{opacity}"/>'
    radius = 2 + width / 2 if len(places) <= 30 else 0
    for x, y in places if radius else places[-1:]:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius or 3:.1f}" fill="{colour}" fill-opacity="{opacity}"/>'


def _named(frame: Frame, best: Document, of: int) -> Iterator[str]:
    """The best trial at the end of its line, and what its parameters are."""
    x, y = frame.x(of - 1, of) + 12, frame.y(best["score"])
    yield text(x, y + 4, f"trial {best['trial']}: {best['score']:.4f}", size=12, weight="bold", ink=LINE)
    parameters = ", ".join(f"{name} {_plain(value)}" for name, value in best["parameters"].items())
    yield text(20, 66, short(parameters, 120), size=11, ink=INK)


def _legend() -> Iterator[str]:
    for at, (name, best, went_on) in enumerate((("best", True, True), ("went on", False, True), ("stopped", False, False))):
        x, y = WIDTH - RIGHT + 20, HEIGHT - BOTTOM - 50 + 20 * at
        colour, width, opacity = _look(best, went_on)
        yield line(x, y, x + 22, y, colour, width=width, opacity=opacity)
        yield text(x + 28, y + 4, name, size=11, ink=FAINT)


def _plain(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _few(names: Sequence[str], most: int = 12) -> list[str]:
    """The same with gaps, where there are more than have room."""
    step = -(-len(names) // most)
    return [name if at % step == 0 or at == len(names) - 1 else "" for at, name in enumerate(names)]
