"""Templates to HTML: how figures, times and digests are written."""

import functools
import math
from datetime import UTC, datetime

from jinja2 import Environment, PackageLoader, StrictUndefined

from model_registry.commands.output import short

TONES = 6
DASH = "\N{EN DASH}"


@functools.cache
def environment() -> Environment:
    """The templates of this package; everything is escaped, and a name that is not there is an error."""
    loader = PackageLoader("scorer.console")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    filters = count, seconds, milliseconds, when, short, tone, percent, figure, measured, change, sentence, options
    made.filters |= {each.__name__: each for each in filters}
    return made


def count(value: float) -> str:
    """A whole number with separators; below 10 a fraction keeps one digit."""
    return f"{value:,.1f}" if 0 < value < 10 and value != int(value) else f"{value:,.0f}"


def figure(value: float | None) -> str:
    """A measured number with three significant digits; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:.3g}" if abs(value) < 1_000 else f"{value:,.0f}"


def measured(value: float | None) -> str:
    """A figure of a model, with four decimal places where it is of that size; a dash where there is none."""
    if value is None:
        return DASH
    return (
        f"{value:.4f}" if value == 0 or 0.001 <= abs(value) < 10 else f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    )


def change(value: float | None) -> str:
    """A difference of two such figures, with its sign."""
    if value is None:
        return DASH
    return f"{value:+.3g}".replace("-", "\N{MINUS SIGN}") if value else "0"


def seconds(value: float | None) -> str:
    """A time in seconds: `0.4 s`, `12 s`, `5 min`, `3 h`, `2 d`; a dash where it is unknown."""
    if value is None:
        return DASH
    for limit, size, unit in ((90.0, 1.0, "s"), (5_400.0, 60.0, "min"), (129_600.0, 3_600.0, "h")):
        if value < limit:
            return f"{value / size:.1f} {unit}" if unit == "s" and 0.05 <= value < 10 else f"{value / size:.0f} {unit}"
    return f"{value / 86_400:.0f} d"


def milliseconds(value: float | None) -> str:
    """A time in ms: `3.2 ms`, `140 ms`, `2.1 s`."""
    if value is None:
        return DASH
    return f"{value / 1_000:.1f} s" if value >= 1_000 else f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"


def when(value: datetime | float) -> str:
    """A moment (Unix seconds, or a datetime) in UTC, to the second; a dash where there is none of that number."""
    try:
        moment = value if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return DASH
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def tone(number: int) -> str:
    return f"t{number % TONES}"


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def options(command: str) -> list[str]:
    """The parts of a command line that belong on one line of a screen: the command, and each option with its value."""
    first, *rest = command.split(" --")
    return [first, *(f"--{part}" for part in rest)]


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if 0 < share < 0.1 else f"{100 * share:.0f} %"
