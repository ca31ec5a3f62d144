"""The table of devices in deploy/backends.md, from the figures that were kept of a machine that had them."""

import json
from pathlib import Path
from typing import Any

from tests.support.environment import ROOT

PAGE = ROOT / "deploy" / "backends.md"
KEPT = Path(__file__).with_name("kept.json")
BEGIN, END = "<!-- devices: made by python -m tests gpu --keep -->\n", "<!-- end of devices -->\n"
DEVICES = {"cuda": "CUDA", "tensorrt": "TensorRT"}


def kept() -> dict[str, Any]:
    """The figures of the last run that was kept; nothing where there was none."""
    return dict(json.loads(KEPT.read_text())) if KEPT.is_file() else {}


def table(figures: dict[str, Any]) -> str:
    """One line a device: where it was verified, with its throughput, or that it was not."""
    lines = ["| `model.device` | |", "|---|---|", "| `cpu` | tested in every check |"]
    for device, name in DEVICES.items():
        found = [one for one in figures.get("figures", []) if one["device"] == device and one["buckets"]]
        said = "**unverified**: no machine with it has run `python -m tests gpu` yet"
        if found:
            best = (f"{one['network']} {max(row['events_per_second'] for row in one['buckets']):,.0f}/s" for one in found)
            said = f"*verified on {figures['machine']}, {figures['date']}, {figures['commit']}*: {', '.join(best)}"
        lines.append(f"| `{device}` ({name}) | {said} |")
    return "\n".join(lines) + "\n"


def put(page: str, figures: dict[str, Any]) -> str:
    """The page with the table in its place. Raises ValueError where the place is not marked."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no place for the table, between {BEGIN!r} and {END!r}")
    return before + begin + table(figures) + end + after
