"""The template environment and its filters for figures, times and digests."""

import functools
import math
from datetime import UTC, datetime

from jinja2 import Environment, PackageLoader, StrictUndefined

from model_registry.oci.digests import short

TONES = 6
DASH = "\N{EN DASH}"


@functools.cache
def environment() -> Environment:
    """Return the Jinja environment of the console's templates. It escapes all values and rejects undefined names."""
    loader = PackageLoader("scorer.console")
    templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    filters = count, seconds, milliseconds, when, short, tone, percent, figure, measured, change, sentence, options
    templates.filters |= {each.__name__: each for each in filters}
    return templates


def count(value: float) -> str:
    """Format a count: `1,234`, or with one decimal place if it is a fraction below 10: `2.5`."""
    return f"{value:,.1f}" if 0 < value < 10 and value != int(value) else f"{value:,.0f}"


def figure(value: float | None) -> str:
    """Format a number with three significant digits; a dash for None."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:.3g}" if abs(value) < 1_000 else f"{value:,.0f}"


def measured(value: float | None) -> str:
    """Format a metric of a model, with four decimal places below 10; a dash for None."""
    if value is None:
        return DASH
    if value == 0 or 0.001 <= abs(value) < 10:
        return f"{value:.4f}"
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def change(value: float | None) -> str:
    """Format the difference of two metrics with its sign; a dash for None."""
    if value is None:
        return DASH
    return f"{value:+.3g}".replace("-", "\N{MINUS SIGN}") if value else "0"


def seconds(value: float | None) -> str:
    """Format a duration in seconds: `0.4 s`, `12 s`, `5 min`, `3 h`, `2 d`; a dash for None."""
    if value is None:
        return DASH
    for limit, size, unit in ((90.0, 1.0, "s"), (5_400.0, 60.0, "min"), (129_600.0, 3_600.0, "h")):
        if value < limit:
            return f"{value / size:.1f} {unit}" if unit == "s" and 0.05 <= value < 10 else f"{value / size:.0f} {unit}"
    return f"{value / 86_400:.0f} d"


def milliseconds(value: float | None) -> str:
    """Format a duration in ms: `3.2 ms`, `140 ms`, `2.1 s`; a dash for None."""
    if value is None:
        return DASH
    if value >= 1_000:
        return f"{value / 1_000:.1f} s"
    return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"


def when(value: datetime | float) -> str:
    """Format a time (Unix seconds or a datetime) in UTC; a dash if it is out of range."""
    try:
        moment = value if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return DASH
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def tone(number: int) -> str:
    """Return the CSS class of the colour with this number."""
    return f"t{number % TONES}"


def sentence(text: str) -> str:
    """Capitalise the first letter."""
    return text[:1].upper() + text[1:]


def options(command: str) -> list[str]:
    """Split a command line into the command and its options, each option with its value."""
    first, *rest = command.split(" --")
    return [first, *(f"--{part}" for part in rest)]


def percent(share: float) -> str:
    """Format a share as a percentage."""
    return f"{100 * share:.1f} %" if 0 < share < 0.1 else f"{100 * share:.0f} %"
