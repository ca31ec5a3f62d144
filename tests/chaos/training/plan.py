"""The kills of a round, drawn from a seed. Pure."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat

STEPS = (
    "plan",
    "freeze",
    "copy",
    "join",
    "search",
    "train",
    "export",
    "push",
    "evaluate",
    "gate",
    "attest",
    "sign",
    "promote",
    "commit",
    "end",
)
LONG = 1.2  # seconds within which a step is hit
KILLS = 3


@dataclass(frozen=True)
class Kill:
    """`kill -9` so many seconds after a step is done; None: after the start."""

    after: str | None
    seconds: float


@dataclass(frozen=True)
class Round:
    """One training. `http`: the registry is a server, which with `outage` is unavailable during a step."""

    number: int
    kills: tuple[Kill, ...]
    http: bool
    champion: bool
    outage: str | None


def rounds(count: int, seed: int) -> Iterator[Round]:
    """Kill each step in turn, right after its end and during the next one; the other kills are at any step."""
    drawn = random.Random(seed)
    at_once = chain.from_iterable(((step, 0.0), (step, None)) for step in chain.from_iterable(repeat(STEPS[:-1])))
    for number, (step, seconds) in zip(range(count), at_once, strict=False):
        first = Kill(step, drawn.uniform(0.0, LONG) if seconds is None else seconds)
        others = (Kill(drawn.choice((None, *STEPS[:-1])), drawn.uniform(0.0, LONG)) for _ in range(drawn.randrange(KILLS)))
        http = number % 2 == 1
        outage = drawn.choice(("gate", "attest", "sign", "export")) if http and number % 4 == 3 else None
        yield Round(number, (first, *others), http, number % 3 != 0, outage)
