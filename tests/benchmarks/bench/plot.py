"""Draw the figures of a run and of other programs as an SVG: the picture of the README, or that of another run.

Only exactly-once figures are drawn. The file of a run without peers is drawn with the peers in `kept.json`.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

KEPT = Path(__file__).with_name("kept.json")
DELIVERY = "exactly-once"
OURS, BUS = "scorestream", "consume and produce alone"
ROW, TOP, NAMES, BAR, LABEL = 26, 58, 190, 250, 110  # pixels
CHART_WIDTH, CHART_HEIGHT, AXIS = 215, 150, 50  # pixels
WIDTH = NAMES + 2 * (BAR + LABEL)
COLOURS = ("#0b6e4f", "#b3541e", "#4a5fc1", "#8a6d1d", "#7a3e86", "#a03050", "#5b6472")
LIGHT = ("#8fd3b6", "#eab793", "#b5bfec", "#ddcb95", "#d0aed8", "#e3a9b8", "#b9c0ca")

Span = tuple[float, float]
"""The lowest and the highest of several runs."""


@dataclass(frozen=True)
class Program:
    """The drained events per second of a program, its cost per event (CPU us), and its figures at each rate."""

    name: str
    events_per_s: Span
    cpu_us: Span
    paced: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Chart:
    """One figure of `Program.paced` by rate, both logarithmic: a number, or the lowest and the highest of several runs."""

    title: str
    figure: str


CHARTS = (
    Chart("latency by rate, median (ms)", "p50_ms"),
    Chart("latency by rate, 99th percentile (ms)", "p99_ms"),
    Chart("CPU of the broker by rate (us an event)", "broker_cpu_us_per_event"),
)


def write(source: Path, target: Path) -> None:
    """Draw the figures of `source` into `target`. Raises KeyError or ValueError if the file is not from a run."""
    target.write_text(draw(json.loads(source.read_text())), encoding="utf-8")


def draw(figures: Mapping[str, Any]) -> str:
    """Return the SVG of the figures of a run and of its peers."""
    programs = [_our_program(figures), *map(_peer, (figures if "peers" in figures else json.loads(KEPT.read_text()))["peers"])]
    bars = [*programs, _bus(figures["bus"])] if figures.get("bus") else programs
    charts = TOP + ROW * len(bars) + 30
    height = charts + 24 + CHART_HEIGHT + 56
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">',
            f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
            _text(NAMES, 42, "dark: the lowest run, light: the highest", size=11),
            *_bars(NAMES, "events a second on one core, exactly once", bars, lambda p: p.events_per_s, _thousands),
            *_bars(NAMES + BAR + LABEL, "CPU of that core (us an event)", bars, lambda p: p.cpu_us, "{:.1f}".format),
            *(_text(NAMES - 10, TOP + ROW * k + 17, p.name, anchor="end", weight=_weight(p)) for k, p in enumerate(bars)),
            *(line for k, c in enumerate(CHARTS) for line in _chart(20 + k * (WIDTH - 20) / 3, charts, c, programs)),
            *_legend(height - 14, programs),
            "</svg>",
            "",
        ]
    )


def _our_program(figures: Mapping[str, Any]) -> Program:
    drains = [row for row in figures["drain"] if row["delivery"] == DELIVERY]
    paced = [row for row in figures["paced"] if row["delivery"] == DELIVERY and row.get("p50_ms")]
    if not (drains and paced):
        raise ValueError(f"the file has no {DELIVERY} figures of the groups drain and paced: run both")
    ends = [
        [row[name][end] for row in drains for end in ("lowest", "highest")] for name in ("events_per_s", "cpu_us_per_event")
    ]
    return Program(OURS, _span(ends[0]), _span(ends[1]), paced)


def _peer(peer: Mapping[str, Any]) -> Program:
    return Program(peer["name"], _span(peer["events_per_s"]), _span(peer["cpu_us_per_event"]), peer.get("paced", []))


def _bus(runs: Sequence[Mapping[str, Any]]) -> Program:
    """Return the limit of all programs: the time and the CPU of reading and writing each event."""
    seconds = [sum(1 / run[half]["events_per_s"] for half in ("consume", "produce")) for run in runs]
    cpu = [sum(run[half]["process_us"] for half in ("consume", "produce")) for run in runs]
    return Program(BUS, _span([1 / each for each in seconds]), _span(cpu))


def _ends(figure: float | Sequence[float]) -> Span:
    """Return the span of a figure of one or several runs."""
    return _span(figure if isinstance(figure, Sequence) else [figure])


def _span(values: Sequence[float]) -> Span:
    return min(values), max(values)


def _bars(
    x: float, title: str, programs: Sequence[Program], figure: Callable[[Program], Span], format_value: Callable[[float], str]
) -> Iterator[str]:
    """Draw a column of bars, one for each program."""
    yield _text(x, 24, title, weight="bold")
    maximum = max(figure(program)[1] for program in programs)
    for number, program in enumerate(programs):
        y, (lowest, highest) = TOP + ROW * number + 5, figure(program)
        dark, light = _colours(program, number)
        yield _bar(x, y, BAR * highest / maximum, light)
        yield _bar(x, y, BAR * lowest / maximum, dark)
        ends = dict.fromkeys((format_value(lowest), format_value(highest)))
        yield _text(x + BAR * highest / maximum + 6, y + 12, "-".join(ends), size=11)


def _chart(x: float, y: float, chart: Chart, programs: Sequence[Program]) -> Iterator[str]:
    """Draw a line for each program, and the axes; `x` and `y` are the upper left corner."""
    lines = [
        [(row["rate"], _ends(row[chart.figure])) for row in program.paced if row.get(chart.figure)] for program in programs
    ]
    rates = sorted({rate for line in lines for rate, _ in line})
    values = _decades([value for line in lines for _, span in line for value in span])
    left, top, bottom = x + AXIS, y + 24, y + 24 + CHART_HEIGHT
    across, down = _scale(_span(rates), left, left + CHART_WIDTH), _scale(_span(values), bottom, top)
    yield _text(x, y + 8, chart.title, weight="bold", size=11)
    for value in values:
        yield f'<path d="M{left:.0f} {down(value):.0f}h{CHART_WIDTH}" stroke="#e3e6ea"/>'
        yield _text(left - 5, down(value) + 4, f"{value:,.0f}", anchor="end", size=10)
    for rate in rates:
        yield _text(across(rate), bottom + 14, f"{rate:,.0f}/s", anchor="middle", size=10)
    for number, (program, line) in enumerate(zip(programs, lines, strict=True)):
        if line:
            colour, _ = _colours(program, number)
            path = "L".join(f"{across(rate):.0f} {down(math.sqrt(low * high)):.0f}" for rate, (low, high) in line)
            yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            yield from (_run(across(rate), down(low), down(high), colour) for rate, (low, high) in line)


def _legend(y: float, programs: Sequence[Program]) -> Iterator[str]:
    """Draw the colours of the programs that have lines."""
    x = 20
    for number, program in enumerate(programs):
        if program.paced:
            colour, _ = _colours(program, number)
            yield _bar(x, y - 9, 18, colour, 10)
            yield _text(x + 24, y, program.name, weight=_weight(program), size=11)
            x += 50 + 7 * len(program.name)


def _decades(values: Sequence[float]) -> list[float]:
    """Return the steps 1, 2 and 5 times a power of ten, from below the values to above them."""
    steps = [step * 10.0**power for power in range(-1, 6) for step in (1, 2, 5)]
    low, high = max(step for step in steps if step <= min(values)), min(step for step in steps if step >= max(values))
    return [step for step in steps if low <= step <= high]


def _scale(span: Span, start: float, end: float) -> Callable[[float], float]:
    """Return the function from a value to pixels, logarithmic."""
    low, high = math.log(span[0]), math.log(span[1])
    return lambda value: start + (end - start) * ((math.log(value) - low) / (high - low) if high > low else 0.5)


def _colours(program: Program, number: int) -> tuple[str, str]:
    at = -1 if program.name == BUS else number % (len(COLOURS) - 1)
    return COLOURS[at], LIGHT[at]


def _weight(program: Program) -> str:
    return "bold" if program.name == OURS else "normal"


def _thousands(value: float) -> str:
    return f"{value / 1_000:,.0f}k"


def _run(x: float, low: float, high: float, colour: str) -> str:
    """Draw a mark from the lowest to the highest of several runs."""
    return f'<path d="M{x:.0f} {low:.0f}V{high:.0f}" stroke="{colour}" stroke-width="6" stroke-linecap="round"/>'


def _bar(x: float, y: float, width: float, colour: str, height: int = 16) -> str:
    return f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height}" rx="2" fill="{colour}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", size: int = 13) -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"'
    return f'<text {place} font-weight="{weight}" font-size="{size}" fill="#1f2430">{escape(text)}</text>'
