"""Everything the console knows, folded from records and looks at the registry. One lock: feeds write, requests read.

The newest deed comes first. `sequence` rises with everything that changes what is shown: browsers with an older one ask again.
"""

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from model_registry.channels.history import ChannelMove
from model_registry.channels.roles import CHAMPION, Role
from publisher.audit.offset_set import Bitmap
from publisher.kafka import source_position
from publisher.kafka.partitions import Partition
from scorer.console.decision_outputs_fold import DecisionOutputsFold
from scorer.console.label_quality_fold import LabelQualityFold
from scorer.console.records import DeadLetter, SampledScore, VersionChange
from scorer.console.score_distribution_fold import ScoreDistributionFold
from scorer.console.scorer_fold import ScorerFold
from scorer.console.split_fold import SplitFold
from scorer.console.throughput_fold import ThroughputFold
from scorer.console.training.attestations import AttestationLibrary
from scorer.dead_letters.headers import NO_REASON
from scorer.rollout.controller.event_log import Ledger

KEPT_ACTIONS = 20  # that are remembered
SWAPS_KEPT = 500  # changes of version that are shown at all
LETTERS_KEPT = 1_000  # newest letters that can be looked at
LETTERS_COUNTED = 200_000  # newest letters that are counted
REASONS = 100  # that are told apart


@dataclass(frozen=True, slots=True)
class Channel:
    """A tag that moves: what it names now, and its newest moves, oldest first. `digest` is the champion's."""

    name: str
    version: str
    digest: str
    revision: int
    roles: Sequence[Role] = ()
    moves: Sequence[ChannelMove] = ()

    @property
    def move(self) -> ChannelMove | None:
        """The move that made it what it is; None where the registry was moved without a history."""
        return next((move for move in self.moves if move.revision == self.revision), None)


@dataclass(frozen=True, slots=True)
class RegistryView:
    """A repository. `read` says whether it was seen at all; `versions` are its tags that never move."""

    repository: str = ""
    channels: dict[str, Channel] = field(default_factory=dict)
    versions: Sequence[str] = ()
    read: bool = False


@dataclass(slots=True)
class VersionChangeFold:
    """Changes of version: `last` has each partition's newest champion, `recent` the newest of all roles, newest first."""

    last: dict[Partition, VersionChange] = field(default_factory=dict)
    recent: deque[VersionChange] = field(default_factory=lambda: deque(maxlen=SWAPS_KEPT))

    def hear(self, record: VersionChange) -> None:
        """Take in a record that is newer than all before of its partition."""
        if record.role == CHAMPION:
            self.last[record.place] = record
        self.recent.appendleft(record)


@dataclass(slots=True)
class DeadLetterFold:
    """Count the letters that a replay would put back, as `scorer replay --dry-run` does, and keep the newest to look at.

    `letters` are the newest, the newest first.
    """

    letters: deque[DeadLetter] = field(default_factory=lambda: deque(maxlen=LETTERS_KEPT))
    _starts: dict[int, int] = field(default_factory=dict)
    _replayed: dict[int, Bitmap] = field(default_factory=dict)
    _lows: dict[int, int] = field(default_factory=dict)
    _reasons: set[str] = field(default_factory=set)
    _fit: dict[tuple[int, str], Bitmap] = field(default_factory=dict)
    _unfit: dict[int, Bitmap] = field(default_factory=dict)

    def hear(self, letter: DeadLetter) -> None:
        """Take in a letter; of reasons that nobody has defined only so many are told apart."""
        self.letters.appendleft(letter)
        place = np.array([letter.offset], np.int64)
        if letter.unfit:
            self._unfit.setdefault(letter.partition, Bitmap()).add(place)
            return
        if len(self._reasons) < REASONS:
            self._reasons.add(letter.reason)
        reason = letter.reason if letter.reason in self._reasons else NO_REASON
        self._fit.setdefault((letter.partition, reason), Bitmap()).add(place)

    def hear_replayed(self, topic: str, key: bytes | None) -> None:
        """Take in the key of a record of `<dead letters>.replayed`: the place of a letter that was put back."""
        try:
            place = source_position.parse(key or b"")
        except ValueError:
            return
        if place.topic == topic:
            self._replayed.setdefault(place.partition, Bitmap()).add(np.array([place.offset], np.int64))

    def put_back(self, letter: DeadLetter) -> bool:
        """Return whether a letter was replayed."""
        marks = self._replayed.get(letter.partition)
        return marks is not None and marks.count(letter.offset, letter.offset + 1) > 0

    def begin(self, partition: int, low: int, start: int) -> None:
        """Note that a partition, whose first offset is `low`, is read from `start` on."""
        self._lows[partition], self._starts[partition] = low, start

    def left_out(self) -> int:
        """Return how many older offsets the topic has that are not read."""
        return sum(max(0, start - self._lows.get(partition, 0)) for partition, start in self._starts.items())

    def keep(self, lows: Mapping[int, int]) -> None:
        """Take in the first offset that the topic keeps, by partition: what retention has removed is not counted."""
        self._lows = dict(lows)

    def by_reason(self) -> Counter[str]:
        """Count the letters that were not replayed and can be, by reason."""
        found = Counter[str]()
        for (partition, reason), offsets in self._fit.items():
            found[reason] += offsets.minus(self._replayed.get(partition, Bitmap())).count(self._lows.get(partition, 0))
        return +found

    def unfit(self) -> int:
        """Return how many letters were not replayed and cannot be."""
        found = 0
        for partition, offsets in self._unfit.items():
            waiting = offsets.minus(self._replayed.get(partition, Bitmap()))
            found += waiting.count(self._lows.get(partition, 0))
        return found


@dataclass(frozen=True, slots=True)
class SourceError:
    """Why a source does not answer, the way out, and since when (Unix seconds)."""

    text: str
    hint: str
    since: float


@dataclass(frozen=True, slots=True)
class Action:
    """An action that somebody asked for here: the command that does the same, and how it ended. `at` in Unix seconds;
    `outcome` is doing, done or failed."""

    number: int
    at: float
    actor: str
    command: str
    outcome: str = "doing"
    said: str = ""


@dataclass
class ConsoleState:
    """See the module. `loaded` says that the bus was read to its end once."""

    scorers: ScorerFold = field(default_factory=ScorerFold)
    swaps: VersionChangeFold = field(default_factory=VersionChangeFold)
    scores: ScoreDistributionFold = field(default_factory=ScoreDistributionFold)
    arms: SplitFold = field(default_factory=SplitFold)
    flow: ThroughputFold = field(default_factory=ThroughputFold)
    outputs: DecisionOutputsFold = field(default_factory=DecisionOutputsFold)
    labelled: LabelQualityFold = field(default_factory=LabelQualityFold)
    letters: DeadLetterFold = field(default_factory=DeadLetterFold)
    rollouts: Ledger = field(default_factory=Ledger)
    registry: RegistryView = field(default_factory=RegistryView)
    training: AttestationLibrary = field(default_factory=AttestationLibrary)
    troubles: dict[str, SourceError] = field(default_factory=dict)
    loaded: bool = False
    deeds: tuple[Action, ...] = ()
    sequence: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def changed(self) -> None:
        self.sequence += 1

    def hear_score(self, record: SampledScore) -> None:
        """Take in a score for the figures, as soon as it is known which of its outputs decides."""
        if (decided := self.outputs.decided(record)) is not None:
            self._add(decided)

    def found_output(self, digest: str, name: str | None) -> None:
        """Take in the output that a version decides on, None if it is unknown, and the scores that waited for it."""
        for record in self.outputs.found(digest, name):
            self._add(record)
        self.changed()

    def _add(self, record: SampledScore) -> None:
        self.scores.hear(record)
        self.labelled.hear(record)

    def trouble(self, source: str, text: str, hint: str, now: float) -> None:
        """The source `bus`, `registry` or `attestations` does not answer. The first time counts."""
        before = self.troubles.get(source)
        self.troubles[source] = SourceError(text, hint, before.since if before else now)
        self.changed()

    def well(self, source: str) -> None:
        if self.troubles.pop(source, None) is not None:
            self.changed()

    def did(self, deed: Action) -> None:
        """Remember a deed, in place of its earlier state. Takes the lock."""
        with self.lock:
            kept = [known for known in self.deeds if known.number != deed.number]
            self.deeds = tuple(sorted([*kept, deed], key=lambda known: -known.number)[:KEPT_ACTIONS])
            self.changed()
