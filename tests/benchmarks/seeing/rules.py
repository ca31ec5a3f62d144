"""The alerts of deploy/ for clocks that run thirty times as fast: only durations change, each divided by 30."""

import re
from typing import Any

from tests.packaging.deploy.alert_rules import groups

SPEED = 30
UNITS = {"s": 1, "m": 60, "h": 3_600}
DURATION = re.compile(r"\b(\d+)([smh])\b")
WINDOW = re.compile(r"\[[^]]*\]|\boffset \w+")
"""The range of a range vector, or an offset."""
THRESHOLD = re.compile(r"(_seconds(?::max)?(?:\{[^}]*\})?(?:\[\w+\])?\)? > )(\d+)\b")
"""A metric in seconds that is compared with a number."""


def shortened(duration: str) -> str:
    """`5m` becomes `10s`. Pure."""
    return DURATION.sub(lambda match: f"{max(1, int(match[1]) * UNITS[match[2]] // SPEED)}s", duration)


def fast() -> dict[str, Any]:
    """The groups of rules as Prometheus reads them."""
    return {"groups": [{**group, "rules": [_fast(rule) for rule in group["rules"]]} for group in groups()]}


def _fast(rule: dict[str, Any]) -> dict[str, Any]:
    expression = THRESHOLD.sub(lambda match: f"{match[1]}{int(match[2]) / SPEED:g}", rule["expr"])
    expression = WINDOW.sub(lambda match: shortened(match[0]), expression)
    return {**rule, "expr": expression, **({"for": shortened(rule["for"])} if "for" in rule else {})}
