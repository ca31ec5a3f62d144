"""The tables of devices in deploy/gpus.md, from the kept figures of a machine with these devices."""

import json
from pathlib import Path
from typing import Any

from tests.support.environment import ROOT

PAGE = ROOT / "deploy" / "gpus.md"
KEPT = Path(__file__).with_name("kept.json")
BEGIN, END = "<!-- devices: made by python -m tests gpu --keep -->\n", "<!-- end of devices -->\n"
DEVICES = {"cuda": "CUDA", "tensorrt": "TensorRT"}
PARTS = ("figures", "broker", "faults")


def kept() -> dict[str, Any]:
    """Return the kept figures of the last runs, or an empty dict."""
    return dict(json.loads(KEPT.read_text())) if KEPT.is_file() else {}


def keep(figures: dict[str, Any]) -> None:
    """Keep the figures of a run; take skipped parts from an earlier run on the same machine and commit."""
    identity = {name: figures[name] for name in ("machine", "commit")}
    if (earlier := kept()) and {name: earlier[name] for name in identity} == identity:
        figures = {**figures, **{part: figures[part] or earlier[part] for part in PARTS}}
    KEPT.write_text(json.dumps(figures, indent=1) + "\n")
    PAGE.write_text(put(PAGE.read_text(), figures))


def table(figures: dict[str, Any]) -> str:
    """Return a line per device, with the verifying machine and its throughput, then the figures of scorers on a broker."""
    lines = ["| `model.device` | |", "|---|---|", "| `cpu` | tested in every check |"]
    for device, name in DEVICES.items():
        results = [result for result in figures.get("figures", []) if result["device"] == device and result["buckets"]]
        status = "**unverified**: no machine with it has run `python -m tests gpu` yet"
        if results:
            best = (
                f"{result['network']} {max(row['events_per_second'] for row in result['buckets']):,.0f}/s" for result in results
            )
            status = f"*verified on {figures['machine']}, {figures['date']}, {figures['commit']}*: {', '.join(best)}"
        lines.append(f"| `{device}` ({name}) | {status} |")
    return "\n".join([*lines, *_on_broker(figures.get("broker", []))]) + "\n"


def _on_broker(figures: list[dict[str, Any]]) -> list[str]:
    if not figures:
        return []
    lines = [
        "",
        "On a real broker, exactly once (`directly`: the same network in a loop without one; p50, p99 and the longest pause",
        "at a swap: at half of what one worker reaches):",
        "",
        "| network | device | events/s by workers | of `directly` | p50, p99 ms | pause ms | GPU busy | MiB, of two versions |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in figures:
        paced, drained = result["paced"], result["drained"]
        reached = ", ".join(f"{row['workers']}: {row['events_per_second']:,.0f}" for row in drained)
        memory = ", ".join(_number(paced.get(name)) for name in ("gpu_mib", "gpu_mib_with_two_versions"))
        lines.append(
            f"| {result['network']} | `{result['device']}` | {reached} | {result['share_of_directly']:.2f} "
            f"| {paced['p50_ms']:,.0f}, {paced['p99_ms']:,.0f} | {_number(paced['swap_pause_ms'])} "
            f"| {_number(drained[0].get('gpu_busy'))} | {memory} |"
        )
    return lines


def _number(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:,.3g}" if figure < 1 else f"{figure:,.0f}"


def put(page: str, figures: dict[str, Any]) -> str:
    """Return the page with the new table. Raises ValueError if the page has no marks for it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no place for the table, between {BEGIN!r} and {END!r}")
    return before + begin + table(figures) + end + after
