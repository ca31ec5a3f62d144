import io

from publisher.runtime.progress_bars import progress_bars
from publisher.runtime.terminal import PlainConsole


def shown(*, terminal: bool, delay_seconds: float) -> str:
    """Return what a console gets while work is half done."""
    written = io.StringIO()
    console = PlainConsole(file=written, force_terminal=terminal, width=80)
    with progress_bars(console, delay_seconds) as show:
        show("scoring", 1, 2)
        show("scoring", 2, 2)
        show("reading", 1, None)
    return written.getvalue()


def test_bars_appear_on_a_terminal_after_the_delay() -> None:
    written = shown(terminal=True, delay_seconds=0.0)
    assert "scoring" in written
    assert "100%" in written


def test_short_work_shows_no_bar() -> None:
    assert shown(terminal=True, delay_seconds=1e9) == ""


def test_no_bar_is_written_to_a_file() -> None:
    assert shown(terminal=False, delay_seconds=0.0) == ""
