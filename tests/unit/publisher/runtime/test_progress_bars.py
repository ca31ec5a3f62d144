import io

from publisher.runtime.progress_bars import progress_bars
from publisher.runtime.terminal import PlainConsole


def console_output(*, terminal: bool, delay_seconds: float) -> str:
    """Return the output of a console for a task that is half done."""
    stream = io.StringIO()
    console = PlainConsole(file=stream, force_terminal=terminal, width=80)
    with progress_bars(console, delay_seconds) as show:
        show("scoring", 1, 2)
        show("scoring", 2, 2)
        show("reading", 1, None)
    return stream.getvalue()


def test_bars_appear_on_a_terminal_after_the_delay() -> None:
    output = console_output(terminal=True, delay_seconds=0.0)
    assert "scoring" in output
    assert "100%" in output


def test_short_work_shows_no_bar() -> None:
    assert console_output(terminal=True, delay_seconds=1e9) == ""


def test_no_bar_is_written_to_a_file() -> None:
    assert console_output(terminal=False, delay_seconds=0.0) == ""
