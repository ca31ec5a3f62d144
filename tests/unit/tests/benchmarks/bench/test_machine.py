"""The readings of processes while they are measured."""

import subprocess
import sys

import psutil

from tests.benchmarks.bench.machine import cpu_seconds, time_used


def test_the_cpu_time_of_a_family_is_known_after_a_descendant_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        ended, running = psutil.Process(child.pid), psutil.Process()
        child.communicate(b"\n")
    assert time_used([ended]) == 0
    assert time_used([running, ended]) > 0


def test_the_cpu_time_of_a_process_that_runs_is_positive() -> None:
    assert cpu_seconds(psutil.Process().pid) > 0
