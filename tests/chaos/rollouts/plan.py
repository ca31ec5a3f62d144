"""The rounds of the campaign: a pure function of a seed."""

import random
from typing import Any, NamedTuple

GOOD, BAD, FAILING, ABORT, PERSON = "good", "bad", "failing", "abort", "person"
OUTCOMES = {GOOD: "completed", BAD: "rolled back", FAILING: "rolled back", ABORT: "aborted", PERSON: "overtaken"}
"""The expected outcome of a rollout by its cause: the candidate, a person who aborts, or a person who moves the channel."""
SHADOW_STEP: dict[str, Any] = {"shadow": "100%", "bake": "1s"}
CANARY_STEP: dict[str, Any] = {"canary": "40%", "bake": "1s"}
PROMOTE_STEP: dict[str, Any] = {"promote": True, "watch": "1s"}
STEPS = (SHADOW_STEP, CANARY_STEP, PROMOTE_STEP)
SCORER, SHADOW, CONTROLLER = "scorer", "shadow", "controller"
FIRST_SECONDS, APART_SECONDS = (0.0, 1.5), (0.5, 6.0)
MAX_KILLS = 5


class Kill(NamedTuple):
    """A kill `at` seconds after the start of the rollout."""

    at: float
    whom: str


class Round(NamedTuple):
    """`steps` are the plan's. `acts_at` is the step in which a person acts. `variant` chooses among candidates of a kind."""

    number: int
    kind: str
    steps: tuple[dict[str, Any], ...]
    acts_at: int
    variant: int
    kills: tuple[Kill, ...]


def rounds(count: int, seed: int) -> list[Round]:
    """Return `count` rounds in random order, with each kind equally often."""
    chance = random.Random(seed)
    kinds: list[str] = []
    while len(kinds) < count:
        block = list(OUTCOMES)
        chance.shuffle(block)
        kinds += block
    return [_round(number, kind, chance) for number, kind in enumerate(kinds[:count])]


def _round(number: int, kind: str, chance: random.Random) -> Round:
    steps = STEPS[chance.randrange(2) if kind in (BAD, FAILING) else 0 :]
    return Round(number, kind, steps, chance.randrange(2), chance.randrange(2), _kills(chance))


def _kills(chance: random.Random) -> tuple[Kill, ...]:
    at, kills = chance.uniform(*FIRST_SECONDS), []
    for _ in range(chance.randint(1, MAX_KILLS)):
        whom = chance.choices((CONTROLLER, SCORER, SHADOW), weights=(5, 3, 2))[0]
        kills.append(Kill(round(at, 2), whom))
        at += chance.uniform(*APART_SECONDS)
    return tuple(kills)


BEFORE_INTENT, IN_INTENT, AFTER_INTENT, IN_MOVE, AFTER_MOVE, AFTER_OUTCOME = POINTS = (
    "before-intent",
    "in-intent",
    "after-intent",
    "in-move",
    "after-move",
    "after-outcome",
)
"""The points at which a controller is killed; see `victim.py`."""


class Death(NamedTuple):
    """A controller dies at the point of its move `nth` (from 1). `aborted`: a person aborts; else approves."""

    point: str
    nth: int
    aborted: bool


def deaths(each: int, seed: int) -> list[Death]:
    """Return `each` deaths of every point, in turn. After the outcome of the last move there is nothing to take over."""
    chance = random.Random(seed)
    choices = [(point, chance.randint(1, 2), chance.random() < 0.3) for _ in range(each) for point in POINTS]
    return [Death(point, 1 if point == AFTER_OUTCOME else nth, aborted) for point, nth, aborted in choices]
