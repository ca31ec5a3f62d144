"""The events, moves and kills of a campaign: a pure function of a seed.

The events come in four phases, and the channel moves between them: the champion alone, two shares of a canary, the canary's
version alone. Each key has an event in one of the phases. One key in AGAIN has an event in each of the phases after that too.
"""

import random
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SHARES = (0, 5, 25, 100)
"""Percent of the keys that the candidate answers, by phase."""
AGAIN = 10
KEYLESS = 50  # one event in so many has no key
KEY_FORMS = (b"k%d", b"customer-%012d", b"account/eu-west/%020d")
"""Of 2 to 36 bytes: the hash has a separate path for keys of 32 bytes and more."""
SOON = 0.02  # of all events: a kill this soon after a move
LAST = 0.95  # of all events: the last kill


class Move(NamedTuple):
    """A move of the channel to this percent of the keys, once `at` events have answers."""

    at: int
    percent: int


@dataclass(frozen=True)
class Plan:
    """`keys` are (n,), int32: the number of each event's key, -1 for none. `kills` has the number of written events at
    each kill of a scorer. Moves and kills are in ascending order."""

    keys: NDArray[np.int32]
    moves: tuple[Move, ...]
    kills: tuple[int, ...]


def key(number: int) -> bytes | None:
    """The key of this number; None for -1."""
    return None if number < 0 else KEY_FORMS[number % len(KEY_FORMS)] % number


def plan(keys: int, kills: int, seed: int) -> Plan:
    """Plan the events of `keys` keys and so many kills. One kill follows soon after each move; the others are at any time."""
    source, chance = np.random.default_rng(seed), random.Random(seed)
    phases = [_phase(keys, phase, source) for phase in range(len(SHARES))]
    ends = np.cumsum([len(phase) for phase in phases]).tolist()
    moves = tuple(Move(end, percent) for end, percent in zip(ends, SHARES[1:], strict=False))
    soon = [move.at + int(chance.uniform(0.0, SOON) * ends[-1]) for move in moves[:kills]]
    any_time = [int(chance.uniform(0.0, LAST) * ends[-1]) for _ in range(kills - len(soon))]
    return Plan(np.concatenate(phases), moves, tuple(sorted([*soon, *any_time])))


def _phase(keys: int, phase: int, source: np.random.Generator) -> NDArray[np.int32]:
    """Return the keys of the events of a phase, shuffled."""
    new = np.arange(keys * phase // len(SHARES), keys * (phase + 1) // len(SHARES))
    again = np.arange(keys // AGAIN if phase else 0)
    none = np.full((len(new) + len(again)) // (KEYLESS - 1), -1)
    return source.permutation(np.concatenate([new, again, none])).astype(np.int32)
