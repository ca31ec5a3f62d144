"""The console of all commands escapes bytes of topics and registries."""

import io
import logging

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from publisher.runtime import command_line
from publisher.runtime.terminal import ConsoleLogHandler, PlainConsole
from tests.support.hostile_records import ESCAPES

ACTIVE = {"\x1b", "\x9b", "\x07", "\u202e", "\x00", "\r"}


def printed(*renderables: object, **options: object) -> str:
    out = io.StringIO()
    PlainConsole(file=out, width=200, force_terminal=False).print(*renderables, **options)  # type: ignore[arg-type]
    return out.getvalue()


def table() -> Table:
    rich_table = Table(ESCAPES, title=ESCAPES)
    rich_table.add_row(ESCAPES)
    rich_table.add_row(Text(ESCAPES))
    return rich_table


@pytest.mark.parametrize("renderable", [ESCAPES, Text(ESCAPES), table(), Group(ESCAPES, Text(ESCAPES)), [ESCAPES]])
def test_control_sequences_are_escaped_and_markup_is_text(renderable: object) -> None:
    text = printed(renderable)
    assert not ACTIVE & set(text)
    assert "\\x1b[31m" in text
    assert "[/bold]" in text or isinstance(renderable, Table)


def test_markup_that_ends_nothing_is_text_too() -> None:
    assert printed("[/red] [bold]") == "[/red] [bold]\n"


def test_styles_are_still_drawn() -> None:
    out = io.StringIO()
    PlainConsole(file=out, force_terminal=True, color_system="standard", width=80).print(Text("x\x1b[5m", "red"))
    assert out.getvalue() == "\x1b[31mx\\x1b[5m\x1b[0m\n"


def test_a_table_prints_strings_unchanged() -> None:
    assert "[/x]" in printed(command_line.table(("[bold]",), [("[/x]",)]))


def test_a_log_message_of_a_command_is_one_escaped_line() -> None:
    out = io.StringIO()
    log = logging.Logger("test")
    log.addHandler(ConsoleLogHandler(PlainConsole(file=out, soft_wrap=True)))
    log.warning("%s", "a\x1b[2Jb")
    log.info("not told")
    assert out.getvalue() == "warning: a\\x1b[2Jb\n"


def test_json_is_escaped_and_means_the_same(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    command_line.print_json({"key": ESCAPES})
    output = capfdbinary.readouterr().out.decode()
    assert not (ACTIVE - {"\n"}) & set(output)
