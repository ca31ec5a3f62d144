"""The watchdog ends a process whose work hangs in a call. The next process continues from the committed offsets."""

import logging
import os
import threading
import time
from collections.abc import Callable

from model_registry import stack_dump

log = logging.getLogger(__name__)

BROKEN = 70  # exit code (EX_SOFTWARE) of a process that ends itself because it hangs or cannot work any longer
CHECK_SECONDS = 1.0


def watch(stuck: Callable[[], str | None]) -> None:
    """Call `stuck` each second in a thread, and end the process if it returns a reason.

    The reason and the stacks of all threads are logged first. The exit code is BROKEN (70).
    """

    def check_regularly() -> None:
        while True:
            time.sleep(CHECK_SECONDS)
            if (reason := stuck()) is not None:
                log.critical("%s; ending the process", reason)
                stack_dump.print_own()
                os._exit(BROKEN)

    threading.Thread(target=check_regularly, name="watchdog", daemon=True).start()
