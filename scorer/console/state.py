"""The state of the console, folded from Kafka records and registry polls.

Feeds write the state, and HTTP requests read it, under one lock.
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
from scorer.console.records import DeadLetter, VersionChange
from scorer.console.score_distribution_fold import ScoreDistributionFold
from scorer.console.scorer_fold import ScorerFold
from scorer.console.split_fold import SplitFold
from scorer.console.throughput_fold import ThroughputFold
from scorer.console.training.attestations import AttestationLibrary
from scorer.console.training.run_history import RunHistory
from scorer.dead_letters.headers import NO_REASON
from scorer.rollout.controller.rollout_state import RolloutLog
from scorer.scores.decode_record import CompleteScoreRecord

KEPT_ACTIONS = 20
SWAPS_KEPT = 500  # newest version changes
LETTERS_KEPT = 1_000  # newest dead letters that can be viewed
LETTERS_COUNTED = 200_000  # newest dead letters that are counted
REASONS = 100  # distinct reasons of dead letters that are counted; further reasons are counted together


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel: its current versions, and its newest moves, the newest last.

    `version` and `digest` are those of the champion. `roles` are the other roles, such as a canary, with their versions.
    """

    name: str
    version: str
    digest: str
    revision: int
    roles: Sequence[Role] = ()
    moves: Sequence[ChannelMove] = ()

    @property
    def move(self) -> ChannelMove | None:
        """The move to the current revision; None if the history has no such move."""
        return next((move for move in self.moves if move.revision == self.revision), None)


@dataclass(frozen=True, slots=True)
class RegistryView:
    """The channels and versions of a repository. `read` is True after the first successful poll."""

    repository: str = ""
    channels: dict[str, Channel] = field(default_factory=dict)
    versions: Sequence[str] = ()
    read: bool = False


@dataclass(slots=True)
class VersionChangeFold:
    """The version changes of partitions.

    Attributes:
        last: The newest change of each partition's champion.
        recent: The newest changes of all roles, the newest first.
    """

    last: dict[Partition, VersionChange] = field(default_factory=dict)
    recent: deque[VersionChange] = field(default_factory=lambda: deque(maxlen=SWAPS_KEPT))

    def add(self, record: VersionChange) -> None:
        """Add a record, which must be newer than all earlier records of its partition."""
        if record.role == CHAMPION:
            self.last[record.place] = record
        self.recent.appendleft(record)


@dataclass(slots=True)
class DeadLetterFold:
    """Count the dead letters that a replay would write back, like `scorer replay --dry-run`, and keep the newest for display.

    `letters` has the newest dead letters, the last added first.
    """

    letters: deque[DeadLetter] = field(default_factory=lambda: deque(maxlen=LETTERS_KEPT))
    _starts: dict[int, int] = field(default_factory=dict)
    _replayed: dict[int, Bitmap] = field(default_factory=dict)
    _lows: dict[int, int] = field(default_factory=dict)
    _reasons: set[str] = field(default_factory=set)
    _fit: dict[tuple[int, str], Bitmap] = field(default_factory=dict)
    _unfit: dict[int, Bitmap] = field(default_factory=dict)

    def add(self, letter: DeadLetter) -> None:
        """Add a dead letter. After REASONS distinct reasons, a further reason is counted as NO_REASON."""
        self.letters.appendleft(letter)
        offset = np.array([letter.offset], np.int64)
        if letter.unfit:
            self._unfit.setdefault(letter.partition, Bitmap()).add(offset)
            return
        if len(self._reasons) < REASONS:
            self._reasons.add(letter.reason)
        reason = letter.reason if letter.reason in self._reasons else NO_REASON
        self._fit.setdefault((letter.partition, reason), Bitmap()).add(offset)

    def add_replayed(self, topic: str, key: bytes | None) -> None:
        """Record a replayed dead letter of the dead-letter topic `topic`. Ignore positions in other topics.

        `key` is the key of a record of the topic `<dead letters>.replayed`. It is the position of the dead letter.
        """
        try:
            position = source_position.parse(key or b"")
        except ValueError:
            return
        if position.topic == topic:
            self._replayed.setdefault(position.partition, Bitmap()).add(np.array([position.offset], np.int64))

    def was_replayed(self, letter: DeadLetter) -> bool:
        """Return True if the dead letter was replayed."""
        offsets = self._replayed.get(letter.partition)
        return offsets is not None and offsets.count(letter.offset, letter.offset + 1) > 0

    def begin(self, partition: int, low: int, start: int) -> None:
        """Record that a partition is read from the offset `start` on; `low` is its first retained offset."""
        self._lows[partition] = low
        self._starts[partition] = start

    def left_out(self) -> int:
        """Return the number of retained offsets before the start of reading, which are never read."""
        return sum(max(0, start - self._lows.get(partition, 0)) for partition, start in self._starts.items())

    def set_low_offsets(self, lows: Mapping[int, int]) -> None:
        """Set the first retained offset of each partition, so that removed dead letters are not counted."""
        self._lows = dict(lows)

    def by_reason(self) -> Counter[str]:
        """Return the number of retained dead letters that can be replayed and have not been replayed, by reason."""
        counts = Counter[str]()
        for (partition, reason), offsets in self._fit.items():
            counts[reason] += offsets.minus(self._replayed.get(partition, Bitmap())).count(self._lows.get(partition, 0))
        return +counts

    def unfit(self) -> int:
        """Count the dead letters that cannot be replayed and are still retained."""
        count = 0
        for partition, offsets in self._unfit.items():
            remaining = offsets.minus(self._replayed.get(partition, Bitmap()))
            count += remaining.count(self._lows.get(partition, 0))
        return count


@dataclass(frozen=True, slots=True)
class SourceError:
    """The current error of a data source, a hint for its remedy, and the time of the first failure in Unix seconds."""

    text: str
    hint: str
    since: float


@dataclass(frozen=True, slots=True)
class Action:
    """An action that a user has requested in the console, with the equivalent command and the result.

    `at` is in Unix seconds; `outcome` is doing, done or failed.
    """

    number: int
    at: float
    actor: str
    command: str
    outcome: str = "doing"
    result: str = ""


@dataclass
class ConsoleState:
    """The state of the console: one object for each kind of figures, and the errors of the data sources.

    Attributes:
        source_errors: The current error of each unavailable source, by its name: `kafka`, `registry` or `attestations`.
        loaded: Whether the Kafka feed has read the topics to their end at least once.
        recent_actions: The newest actions, the newest first.
        sequence: The number of visible changes so far. A browser fetches its page again if the page was built when this number
            was lower.
    """

    scorers: ScorerFold = field(default_factory=ScorerFold)
    swaps: VersionChangeFold = field(default_factory=VersionChangeFold)
    scores: ScoreDistributionFold = field(default_factory=ScoreDistributionFold)
    arms: SplitFold = field(default_factory=SplitFold)
    flow: ThroughputFold = field(default_factory=ThroughputFold)
    outputs: DecisionOutputsFold = field(default_factory=DecisionOutputsFold)
    labelled: LabelQualityFold = field(default_factory=LabelQualityFold)
    letters: DeadLetterFold = field(default_factory=DeadLetterFold)
    rollouts: RolloutLog = field(default_factory=RolloutLog)
    registry: RegistryView = field(default_factory=RegistryView)
    training: AttestationLibrary = field(default_factory=AttestationLibrary)
    runs: RunHistory = field(default_factory=RunHistory)
    source_errors: dict[str, SourceError] = field(default_factory=dict)
    loaded: bool = False
    recent_actions: tuple[Action, ...] = ()
    sequence: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def changed(self) -> None:
        """Increase the sequence number after a visible change."""
        self.sequence += 1

    def add_score(self, record: CompleteScoreRecord) -> None:
        """Add a score to the figures, or hold the score until its decision output is known."""
        if (decided := self.outputs.decided(record)) is not None:
            self._add(decided)

    def add_output(self, digest: str, name: str | None) -> None:
        """Record the name of a version's decision output (None if unknown), and add the held scores of the version."""
        for record in self.outputs.resolve(digest, name):
            self._add(record)
        self.changed()

    def _add(self, record: CompleteScoreRecord) -> None:
        self.scores.add(record)
        self.labelled.add(record)

    def record_error(self, source: str, text: str, hint: str, now: float) -> None:
        """Record the current error of a data source.

        `now` is recorded as the time of the first failure, unless the source was already unavailable.
        """
        before = self.source_errors.get(source)
        self.source_errors[source] = SourceError(text, hint, before.since if before else now)
        self.changed()

    def clear_error(self, source: str) -> None:
        """Record that a data source is available again."""
        if self.source_errors.pop(source, None) is not None:
            self.changed()

    def record_action(self, action: Action) -> None:
        """Record the new state of an action. This method acquires the lock, so the caller must not hold it."""
        with self.lock:
            others = [each for each in self.recent_actions if each.number != action.number]
            newest_first = sorted([*others, action], key=lambda each: -each.number)
            self.recent_actions = tuple(newest_first[:KEPT_ACTIONS])
            self.changed()
