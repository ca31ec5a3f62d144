"""Draws events a second and latency beside peers as an SVG: the picture of the README, or that of a run of one's own.

Only exactly-once figures are drawn. A run's own file has no peers; then the peers that are kept here are drawn beside it.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

KEPT = Path(__file__).with_name("kept.json")
OURS = "scorestream"
RATE = 1_000.0  # events a second at which the latency was measured
ROW, TOP, NAMES, WIDTH, GAP = 30, 58, 200, 290, 120  # pixels
DARK, LIGHT, OTHER, OTHER_LIGHT = "#0b6e4f", "#8fd3b6", "#5b6472", "#b9c0ca"
LATENCIES = (5.0, 2_000.0)  # the ends of the logarithmic axis, ms


@dataclass(frozen=True)
class Row:
    """One program: its slowest and fastest drain (events/s), and the median and 99th percentile of its latency (ms)."""

    name: str
    lowest: float
    highest: float
    p50_ms: float
    p99_ms: float


def write(source: Path, target: Path) -> None:
    """Draw the figures of `source` into `target`. Raises KeyError or ValueError for a file that is no run of the bench."""
    target.write_text(draw(json.loads(source.read_text())), encoding="utf-8")


def draw(found: Mapping[str, Any]) -> str:
    """The SVG of a run's figures, beside those of its peers."""
    peers = found["peers"] if "peers" in found else json.loads(KEPT.read_text())["peers"]
    rows = [_own(found), *(_peer(peer) for peer in peers)]
    width, height = NAMES + 2 * WIDTH + 2 * GAP, TOP + ROW * len(rows) + 20
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
            f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>',
            _text(NAMES, 24, "events a second on one core, exactly once", weight="bold"),
            _text(NAMES, 42, "dark: the slowest run, light: the fastest", size=11),
            _text(NAMES + WIDTH + GAP, 24, f"latency at {RATE:,.0f} events a second (ms)", weight="bold"),
            _text(NAMES + WIDTH + GAP, 42, "half of all scores, and 99 % of them; logarithmic", size=11),
            *_lines(rows),
            "</svg>",
            "",
        ]
    )


def _own(found: Mapping[str, Any]) -> Row:
    drains = [row["events_per_s"] for row in found["drain"] if row["delivery"] == "exactly-once"]
    paced = [row for row in found["paced"] if row["delivery"] == "exactly-once" and row["rate"] == RATE]
    if not (drains and paced):
        raise ValueError(f"the file has no exactly-once figures of the groups drain and paced (at {RATE:.0f}/s)")
    spread = [value for drain in drains for value in (drain["lowest"], drain["highest"])]
    return Row(OURS, min(spread), max(spread), paced[0]["p50_ms"], paced[0]["p99_ms"])


def _peer(peer: Mapping[str, Any]) -> Row:
    lowest, highest = peer["events_per_s"]
    return Row(peer["name"], lowest, highest, peer["p50_ms"], peer["p99_ms"])


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    most = max(row.highest for row in rows)
    for number, row in enumerate(rows):
        y, ours = TOP + ROW * number, row.name == OURS
        dark, light = (DARK, LIGHT) if ours else (OTHER, OTHER_LIGHT)
        yield _text(NAMES - 10, y + 18, row.name, anchor="end", weight="bold" if ours else "normal")
        yield _bar(NAMES, y + 6, WIDTH * row.highest / most, light)
        yield _bar(NAMES, y + 6, WIDTH * row.lowest / most, dark)
        same = round(row.lowest, -3) == round(row.highest, -3)
        span = f"{row.highest / 1_000:,.0f}k" if same else f"{row.lowest / 1_000:,.0f}k-{row.highest / 1_000:,.0f}k"
        yield _text(NAMES + WIDTH * row.highest / most + 6, y + 18, span, size=11)
        half, most_of_all = (NAMES + WIDTH + GAP + _along(value) for value in (row.p50_ms, row.p99_ms))
        yield f'<path d="M{half:.0f} {y + 14}H{most_of_all:.0f}" stroke="{light}" stroke-width="4"/>'
        yield from (f'<circle cx="{x:.0f}" cy="{y + 14}" r="5" fill="{dark}"/>' for x in (half, most_of_all))
        yield _text(most_of_all + 10, y + 18, f"{row.p50_ms:,.0f}, {row.p99_ms:,.0f}", size=11)


def _along(milliseconds: float) -> float:
    """Pixels from the beginning of the latency axis."""
    low, high = map(math.log, LATENCIES)
    return WIDTH * min(1.0, max(0.0, (math.log(milliseconds) - low) / (high - low)))


def _bar(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="16" rx="2" fill="{colour}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", size: int = 13) -> str:
    place = f'x="{x:.0f}" y="{y}" text-anchor="{anchor}"'
    return f'<text {place} font-weight="{weight}" font-size="{size}" fill="#1f2430">{escape(text)}</text>'
