"""Plot precision, recall and cost by threshold as SVG. Pure."""

from collections.abc import Callable, Iterator

from scorer.evaluation.svg import TONES, line, picture, text
from training.validation_gate.thresholds import ThresholdFigures, ThresholdRow

# pixels
WIDTH = 460
HEIGHT = 280
LEFT = 50
RIGHT = 400
TOP = 40
BOTTOM = 230
CURVES: tuple[tuple[str, str, Callable[[ThresholdRow], float | None]], ...] = (
    ("precision", "good", lambda row: row.precision),
    ("recall", "ink", lambda row: row.recall),
    ("cost", "mark", lambda row: row.cost),
)


def plot(figures: ThresholdFigures) -> str:
    """Return the plot as SVG. If there are costs, the right axis shows the cost."""
    return picture(WIDTH, HEIGHT, _parts(figures))


def _parts(figures: ThresholdFigures) -> Iterator[str]:
    rows = figures.thresholds
    low = rows[0].threshold
    span = rows[-1].threshold - low or 1.0
    costs = [row.cost for row in rows if row.cost is not None]
    highest = max(costs, default=1.0) or 1.0
    yield text(LEFT, 18, f"{figures.class_}: {figures.positives:,} of {figures.rows:,} rows", weight="bold")
    yield line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis")
    for share in (0.0, 0.5, 1.0):
        y = BOTTOM - share * (BOTTOM - TOP)
        yield line(LEFT, y, RIGHT, y)
        yield text(LEFT - 6, y + 4, f"{share:g}", anchor="end", size=11)
        if costs:
            yield text(RIGHT + 6, y + 4, f"{share * highest:.3g}", size=11, tone="mark")
    for row in (rows[0], rows[len(rows) // 2], rows[-1]):
        x = LEFT + (row.threshold - low) / span * (RIGHT - LEFT)
        yield text(x, BOTTOM + 16, f"{row.threshold:.3g}", anchor="middle", size=11)
    at = LEFT
    for name, tone, value_of in CURVES:
        scale = highest if name == "cost" else 1.0
        points = [(row.threshold, value) for row in rows if (value := value_of(row)) is not None]
        if not points:
            continue
        drawn = " ".join(
            f"{LEFT + (threshold - low) / span * (RIGHT - LEFT):.1f},{BOTTOM - value / scale * (BOTTOM - TOP):.1f}"
            for threshold, value in points
        )
        yield f'<polyline points="{drawn}" class="stroke hollow {tone}" fill="none" stroke="{TONES[tone]}" stroke-width="2"/>'
        yield text(at, HEIGHT - 12, name, weight="bold", tone=tone)
        at += 90
    yield text(RIGHT, HEIGHT - 12, "by threshold", anchor="end", size=11, tone="muted")
