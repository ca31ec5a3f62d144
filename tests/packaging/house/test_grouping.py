"""The groups of tests that one process runs."""

from types import SimpleNamespace

import pytest

from tests.support.grouping import GroupScheduling, group_of, start_order

RELAY = [f"tests/integration/relay/test_{file}.py::test_{number}" for file in "ab" for number in range(4)]
FORMATS = [f"tests/integration/scorer/test_{file}formats.py::test_x[a@b]" for file in ("", "score_")]
UNIT = [f"tests/unit/scorer/test_{file}.py::test_{number}" for file in "abc" for number in range(3)]


class Process:
    """A process of pytest-xdist that records the tests it was sent."""

    shutting_down = False

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id="gw")
        self.sent: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_one_process_runs_the_tests_of_a_group(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytestconfig.option, "tx", ["2*popen"])
    monkeypatch.setattr(pytestconfig.option, "loadscopereorder", False)
    tests = sorted([*UNIT, *FORMATS, *RELAY], key=start_order)
    scheduling, processes = GroupScheduling(pytestconfig), [Process(), Process()]
    for process in processes:
        scheduling.add_node(process)
        scheduling.add_node_collection(process, tests)
    scheduling.schedule()
    completed = dict.fromkeys(processes, 0)
    while any(completed[process] < len(process.sent) for process in processes):
        for process in processes:
            if completed[process] < len(process.sent):
                completed[process] += 1
                scheduling.mark_test_complete(process, process.sent[completed[process] - 1])
    groups = [{group_of(tests[index]) for index in process.sent} for process in processes]
    assert all(groups)
    assert groups[0].isdisjoint(groups[1])
    assert sorted(index for process in processes for index in process.sent) == list(range(len(tests)))


def test_groups_are_files_or_share_servers() -> None:
    assert {group_of(test) for test in RELAY} == {"relay"}
    assert {group_of(test) for test in FORMATS} == {"schema registry"}
    assert {group_of(test) for test in UNIT} == {f"tests/unit/scorer/test_{file}.py" for file in "abc"}


def test_groups_with_servers_start_first() -> None:
    assert sorted([UNIT[0], FORMATS[0], RELAY[0]], key=start_order) == [RELAY[0], FORMATS[0], UNIT[0]]
