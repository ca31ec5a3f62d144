"""Everything the console knows, folded from records and looks at the registry. One lock: feeds write, requests read.

The newest deed comes first. `sequence` rises with everything that changes what is shown; browsers that have an older one
ask again.
"""

import threading
from dataclasses import dataclass, field

from scorer.console.channels import RegistryView
from scorer.console.distribution import ScoresFold
from scorer.console.flow import FlowFold
from scorer.console.letters import LetterFold
from scorer.console.scorers import ScorersFold
from scorer.console.swaps import SwapFold

DEEDS = 20  # that are remembered


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a source does not answer, the way out, and since when (Unix seconds)."""

    text: str
    hint: str
    since: float


@dataclass(frozen=True, slots=True)
class Deed:
    """An action that somebody asked for here: the command that does the same, and how it ended. `at` in Unix seconds;
    `outcome` is doing, done or failed."""

    number: int
    at: float
    actor: str
    command: str
    outcome: str = "doing"
    said: str = ""


@dataclass
class State:
    """See the module. `loaded` says that the bus was read to its end once."""

    scorers: ScorersFold = field(default_factory=ScorersFold)
    swaps: SwapFold = field(default_factory=SwapFold)
    scores: ScoresFold = field(default_factory=ScoresFold)
    flow: FlowFold = field(default_factory=FlowFold)
    letters: LetterFold = field(default_factory=LetterFold)
    registry: RegistryView = field(default_factory=RegistryView)
    bus_trouble: Trouble | None = None
    registry_trouble: Trouble | None = None
    loaded: bool = False
    deeds: tuple[Deed, ...] = ()
    sequence: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def changed(self) -> None:
        """Something that is shown is another."""
        self.sequence += 1

    def trouble(self, source: str, text: str, hint: str, now: float) -> None:
        """The source `bus` or `registry` does not answer. The first time counts."""
        name = f"{source}_trouble"
        before: Trouble | None = getattr(self, name)
        setattr(self, name, Trouble(text, hint, before.since if before else now))
        self.changed()

    def well(self, source: str) -> None:
        """The source answers."""
        if getattr(self, f"{source}_trouble") is not None:
            setattr(self, f"{source}_trouble", None)
            self.changed()

    def did(self, deed: Deed) -> None:
        """Remember a deed, in place of its earlier state."""
        kept = [known for known in self.deeds if known.number != deed.number]
        self.deeds = tuple(sorted([*kept, deed], key=lambda known: -known.number)[:DEEDS])
        self.changed()
