"""What to do about an event that kills the process that scores it. Pure.

The metadata of a committed offset carries `attempts`: how often a process has died over the events that follow it. Whoever is
assigned a partition claims it by writing the same offset again under its own name, with one attempt more where the process
before it died; progress resets the number. So a batch pays nothing for this.

Two deaths without progress may have any cause. From then on events are examined one at a time, alone, and before each
examination the mark says so (`alone`): a death counts against an event only if that event was alone in hand. That an owner has
lost the partition, or has left, is no death, whatever the mark says.
"""

from dataclasses import dataclass

ALONE_FROM = 2  # attempts from which on events are taken one at a time
DEAD_FROM = 4  # attempts from which on the first event is dead-lettered without being scored


@dataclass(frozen=True, slots=True)
class Arrival:
    """A partition as its new owner claims it: its attempts now, and how many offsets lay before its end."""

    attempts: int
    waiting: int

    @classmethod
    def after(cls, attempts: int, *, alone: bool, crashed: bool, waiting: int) -> "Arrival":
        """From the attempts in its mark, and whether its first event was `alone` in hand; `crashed` where its owner died.

        Where nothing waits, no event can have been the cause. Deaths over a batch never raise the number beyond ALONE_FROM.
        """
        if waiting <= 0:
            return cls(0, 0)
        return cls(attempts + 1 if crashed and (alone or attempts < ALONE_FROM) else attempts, waiting)


@dataclass(slots=True)
class Suspicion:
    """A partition whose next `left` events are examined one at a time.

    `attempts` is how often the first of them was in hand when a process died; `announced` whether the mark already says that it
    is examined.
    """

    attempts: int
    left: int
    announced: bool = False

    @classmethod
    def of(cls, arrival: Arrival, largest_batch: int) -> "Suspicion | None":
        """None where nothing is suspected. What killed was in one batch, so at most so many events are examined."""
        left = min(arrival.waiting, largest_batch)
        return cls(arrival.attempts, left) if arrival.attempts >= ALONE_FROM and left > 0 else None

    @property
    def guilty(self) -> bool:
        """Whether the first event is not to be scored any more."""
        return self.attempts >= DEAD_FROM

    @property
    def after_progress(self) -> int:
        """The attempts to commit with the first event's answer: what the next one begins with, 0 after the last."""
        return ALONE_FROM if self.left > 1 else 0

    def answered(self, *, announced: bool) -> None:
        """The first event's answer is committed, and the next one is `announced` with it."""
        self.left -= 1
        self.attempts, self.announced = ALONE_FROM, announced
