"""Ends a process whose work hangs in a call that never returns. A successor goes on from what is committed."""

import faulthandler
import logging
import os
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

BROKEN = 70  # the exit code of a process that ends itself because it hangs, or works no more (EX_SOFTWARE)
LOOK_SECONDS = 1.0


def watch(stuck: Callable[[], str | None]) -> None:
    """Call `stuck` each second in a thread. When it names what hangs, all stacks are printed and the process ends (BROKEN)."""

    def look() -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            if (what := stuck()) is not None:
                log.critical("%s; ending the process", what)
                faulthandler.dump_traceback(all_threads=True)
                os._exit(BROKEN)

    threading.Thread(target=look, name="watchdog", daemon=True).start()
