"""The dead letters that were looked at, and which of them were put back. Folded."""

from collections import Counter, deque
from dataclasses import dataclass, field

from publisher import positions
from scorer.console.records import DeadLetter

KEPT = 1_000  # newest letters that can be looked at
MARKS = 50_000  # places of replayed letters, those of letters that are not kept included


@dataclass(slots=True)
class LetterFold:
    """`letters` newest first; `by_reason` counts those among them that nobody has put back, `replayed` has their places."""

    letters: deque[DeadLetter] = field(default_factory=deque)
    replayed: set[tuple[int, int]] = field(default_factory=set)

    def hear(self, letter: DeadLetter) -> None:
        """Take in a letter."""
        self.letters.appendleft(letter)
        if len(self.letters) > KEPT:
            self.letters.pop()

    def hear_replayed(self, topic: str, key: bytes | None) -> None:
        """Take in the key of a record of `<dead letters>.replayed`: the place of a letter that was put back."""
        try:
            place = positions.parse(key or b"")
        except ValueError:
            return
        if place.topic == topic:
            self.replayed.add((place.partition, place.offset))
        if len(self.replayed) > MARKS:
            self.replayed &= {(letter.partition, letter.offset) for letter in self.letters}

    def waiting(self) -> list[DeadLetter]:
        """Those that nobody has put back, newest first."""
        return [letter for letter in self.letters if not self.put_back(letter)]

    def put_back(self, letter: DeadLetter) -> bool:
        """Whether it was replayed."""
        return (letter.partition, letter.offset) in self.replayed

    def by_reason(self) -> Counter[str]:
        """Those that wait, by reason, the most frequent first."""
        return Counter(letter.reason for letter in self.waiting())
