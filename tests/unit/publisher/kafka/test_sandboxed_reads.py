"""Suspect partitions over scripted processes: the records read, the batches skipped, and the replacement of processes."""

from collections import deque
from collections.abc import Callable

from publisher.kafka.partitions import Partition
from publisher.kafka.sandbox_program import (
    Answer,
    Ended,
    NoAnswerYet,
    Read,
    Records,
    Rejected,
    RepeatCarefully,
    Row,
    Unreadable,
)
from publisher.kafka.sandboxed_reads import (
    CAREFUL_BYTES,
    ENOUGH_BYTES,
    SILENT_SECONDS,
    Sandboxed,
    SandboxResult,
    UnreadableBatch,
)

PARTITION: Partition = ("flights", 0)
OTHER: Partition = ("flights", 1)
BOMB = Unreadable(7, "gzip", 300, 3, "too large")


def records(*offsets: int, size: int = 1) -> Records:
    return Records([Row(offset, None, b"x" * size, (1, 1_000), 0, None, None) for offset in offsets])


class Script:
    """Processes that give the answers of a script: "dies" ends the process, None is no answer. Records all requests."""

    def __init__(self, *answers: Answer | str | None) -> None:
        self.answers = deque(answers)
        self.requests: list[tuple[Read, bool]] = []
        self.started: list[bool] = []
        self.running = 0
        self.now = 0.0
        self.sandboxed = Sandboxed(self.start, lambda: self.now)

    def start(self, careful: bool) -> "ScriptedChild":
        self.started.append(careful)
        self.running += 1
        return ScriptedChild(self, careful)

    def take(self, turns: int, readable: Callable[[Partition], bool] = lambda _: True) -> list[SandboxResult]:
        results = []
        for _ in range(turns):
            self.now += 2.0
            if (result := self.sandboxed.take(0.0, readable)) is not None:
                results.append(result)
        return results


class ScriptedChild:
    """A sandbox process whose answers are scripted."""

    def __init__(self, script: Script, careful: bool) -> None:
        self._script, self._careful = script, careful

    def ask(self, question: Read) -> None:
        self._script.requests.append((question, self._careful))

    def answer(self, _: float) -> Answer | None:
        answer = self._script.answers.popleft() if self._script.answers else None
        if answer == "dies":
            raise EOFError
        assert not isinstance(answer, str)
        return answer

    def close(self) -> None:
        self._script.running -= 1


def test_without_suspects_there_is_no_process() -> None:
    script = Script()
    assert script.take(1) == []
    assert script.started == []


def test_a_suspect_is_cleared_at_its_end_and_the_process_ends() -> None:
    script = Script(records(5, 6), Ended(7))
    script.sandboxed.add(PARTITION, 5)
    read, ended = script.take(2)
    assert ([row.offset for row in read.rows], read.released) == ([5, 6], False)
    assert (ended.rows, ended.released) == ([], True)
    assert [question.offset for question, _ in script.requests] == [5, 7]
    assert (bool(script.sandboxed), script.running) == (False, 0)


def test_a_suspect_is_cleared_when_enough_is_read() -> None:
    script = Script(records(5, size=ENOUGH_BYTES))
    script.sandboxed.add(PARTITION, 5)
    assert [result.released for result in script.take(1)] == [True]


def test_a_suspect_whose_fetch_the_broker_rejects_is_released_to_the_usual_reader() -> None:
    script = Script(Rejected("the log does not hold the offset"))
    script.sandboxed.add(PARTITION, 5)
    assert script.take(1) == [SandboxResult(PARTITION, released=True)]
    assert (bool(script.sandboxed), script.running) == (False, 0)


def test_a_careful_process_identifies_the_batch_and_reading_continues_behind_it() -> None:
    script = Script(RepeatCarefully(), BOMB, records(8))
    script.sandboxed.add(PARTITION, 5)
    passed, read = script.take(3)
    assert passed.unreadable == UnreadableBatch(PARTITION, 5, 7, "gzip", 300, 3, "too large")
    assert [row.offset for row in read.rows] == [8]
    assert [(question.offset, careful) for question, careful in script.requests] == [(5, False), (5, True), (8, False)]
    assert script.started == [False, True, False]


def test_a_usual_process_continues_after_a_careful_one_has_read_enough() -> None:
    script = Script(RepeatCarefully(), records(5), records(6, size=CAREFUL_BYTES), records(7))
    script.sandboxed.add(PARTITION, 5)
    assert [row.offset for result in script.take(4) for row in result.rows] == [5, 6, 7]
    assert script.started == [False, True, False]


def test_an_end_beside_the_records_before_it_clears_a_suspect() -> None:
    script = Script(Records(records(5, 6).rows, ended=True))
    script.sandboxed.add(PARTITION, 5)
    (result,) = script.take(1)
    assert ([row.offset for row in result.rows], result.released) == ([5, 6], True)


def test_a_process_that_dies_without_an_answer_is_replaced_by_a_careful_one() -> None:
    script = Script("dies", records(5))
    script.sandboxed.add(PARTITION, 5)
    assert [row.offset for result in script.take(2) for row in result.rows] == [5]
    assert script.started == [False, True]


def test_an_offset_that_ends_two_careful_processes_is_skipped() -> None:
    script = Script("dies", "dies", "dies", records(6))
    script.sandboxed.add(PARTITION, 5)
    result = script.take(5)
    assert [(t.unreadable.first, t.unreadable.last) for t in result if t.unreadable] == [(5, 5)]
    assert [row.offset for t in result for row in t.rows] == [6]


def test_a_silent_process_is_replaced() -> None:
    script = Script(None)
    script.sandboxed.add(PARTITION, 5)
    script.take(1)
    script.now += SILENT_SECONDS
    script.answers.append(None)
    script.take(2)
    assert script.started == [False, True]


def test_a_broker_without_an_answer_costs_no_record() -> None:
    script = Script(NoAnswerYet(), records(5))
    script.sandboxed.add(PARTITION, 5)
    assert [row.offset for result in script.take(2) for row in result.rows] == [5]
    assert script.started == [False]


def test_an_answer_about_an_earlier_position_is_ignored() -> None:
    script = Script(None, records(5), records(2))
    script.sandboxed.add(PARTITION, 5)
    script.take(1)
    script.sandboxed.add(PARTITION, 2)
    assert [row.offset for result in script.take(2) for row in result.rows] == [2]


def test_suspects_take_turns_and_one_that_is_not_readable_waits() -> None:
    script = Script(records(5), records(1), records(6))
    script.sandboxed.add(PARTITION, 5)
    script.sandboxed.add(OTHER, 1)
    assert [result.partition for result in script.take(2)] == [PARTITION, OTHER]
    assert script.take(1, lambda _: False) == []
