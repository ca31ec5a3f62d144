"""A process that hangs ends itself; one that works does not."""

import subprocess
import sys

from publisher.process.watchdog import HANGING

PROGRAM = """
import sys, time
from publisher.process import logs, watchdog

logs.configure({}, "INFO")
looks = iter([None, None, "lane 3 has not moved"])
watchdog.watch(lambda: next(looks))
time.sleep(60)
"""


def test_a_process_that_hangs_says_where_and_ends() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == HANGING
    assert "lane 3 has not moved; ending the process" in ended.stderr
    assert "time.sleep" in ended.stderr or "<string>" in ended.stderr
