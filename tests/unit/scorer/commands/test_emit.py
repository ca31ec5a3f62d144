"""The progress of `scorer emit`, which is shown only on a terminal."""

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from scorer.emit.delivery_counts import Confirmations
from scorer.emit.record_template import InputRecord
from tests.support.waiting import STEP_SECONDS
from tests.unit.scorer.minimal import STATED

PROGRAM = """
from pathlib import Path
from scorer.commands import emit
from tests.unit.scorer.commands.test_emit import ConfirmingWriter

emit.EventWriter = ConfirmingWriter
emit.SHOW_SECONDS = -1.0  # update the progress after each event
emit.emit(Path("scorer.yaml"), file=Path("events.jsonl"))
"""

TERMINAL_OVERRIDES = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
"""Variables that make rich treat a pipe as a terminal, or a terminal as a pipe."""


class ConfirmingWriter:
    """An `EventWriter` without a broker: each event is confirmed at once."""

    def __init__(self, _settings: Any, _topic: str, confirmations: Confirmations, _interruption: Any) -> None:
        self._confirmations = confirmations

    def write(self, line: int, _record: InputRecord) -> None:
        self._confirmations.add_sent(line)
        self._confirmations.confirm(line)

    def confirm(self) -> None:
        pass

    def close(self) -> None:
        pass


def emit_three_events(folder: Path, stderr: int) -> subprocess.CompletedProcess[bytes]:
    """Emit three events in a process with this stderr."""
    (folder / "scorer.yaml").write_text(yaml.safe_dump(STATED))
    (folder / "events.jsonl").write_text('{"a": 1}\n' * 3)
    inherited = {name: value for name, value in os.environ.items() if name not in TERMINAL_OVERRIDES}
    variables = {**inherited, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", "COLUMNS": "80"}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(
        command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=stderr, timeout=STEP_SECONDS, check=True
    )


def read_screen(controller: int) -> bytes:
    """Return the output of a terminal that no process has open."""
    output = b""
    with contextlib.suppress(OSError):  # EIO, when all output is read
        while chunk := os.read(controller, 1 << 16):
            output += chunk
    return output


def test_the_number_of_events_is_shown_on_a_terminal(tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    try:
        try:
            completed = emit_three_events(tmp_path, terminal)
        finally:
            os.close(terminal)
        screen = read_screen(controller)
    finally:
        os.close(controller)
    assert b"writing" in screen
    assert b"3 events" in screen
    assert completed.stdout == b"3 events written\n"


def test_no_progress_is_shown_without_a_terminal(tmp_path: Path) -> None:
    completed = emit_three_events(tmp_path, subprocess.PIPE)
    assert (completed.stdout, completed.stderr) == (b"3 events written\n", b"")
