"""Answers to a topic that was made again, told apart from answers to the one before it."""

from publisher.audit.records import Logs, SwapRecord

HERE, OUT = ("flights", 0), [("scores", 0), ("scores", 1)]


def swap(topic_id: str, scores: list[int] | None = None, letters: list[int] | None = None) -> SwapRecord:
    return SwapRecord(*HERE, 0, 1, "sha256:a", topic_id, scores, letters)


def test_answers_before_the_first_to_the_new_topic_are_gone() -> None:
    logs = Logs({"flights": "new"})
    assert not logs.gone(HERE, OUT[0], 0)
    assert not logs.present(swap("old"))
    assert logs.gone(HERE, OUT[0], 99)  # nothing of the new one is answered
    assert logs.present(swap("new", [7, 3], [1]))
    assert logs.present(swap("new", [70, 30], [10]))  # the first one holds
    assert [logs.gone(HERE, OUT[0], at) for at in (6, 7)] == [True, False]
    assert [logs.gone(HERE, OUT[1], at) for at in (2, 3)] == [True, False]
    assert [logs.gone(HERE, ("dead", 0), at, dead=True) for at in (0, 1)] == [True, False]
    assert not logs.gone(HERE, ("scores", 2), 0)  # a partition of the output that was added since


def test_a_topic_that_was_made_again_twice_has_one_present() -> None:
    logs = Logs({"flights": "third"})
    assert [logs.present(swap(*told)) for told in (("first",), ("second", [5], [0]), ("third", [9], [0]))] == [
        False,
        False,
        True,
    ]
    assert [logs.gone(HERE, OUT[0], at) for at in (8, 9)] == [True, False]


def test_without_ids_nothing_is_told_apart() -> None:
    logs = Logs({})
    assert all(logs.present(swap(told)) for told in ("", "old", "new"))
    assert not logs.gone(HERE, OUT[0], 0)
