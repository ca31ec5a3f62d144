"""The settings of the log (`log.level`, `log.format`), which scorers and relays share. `logs.py` applies them."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from publisher.runtime.configuration import Section


def _lower_case(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


class LogSettings(Section):
    """The log settings of a long-running process: the level and the format."""

    level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower_case)] = "info"
    """The least severe level that is logged. The option `--log-level` overrides it."""
    format: Literal["auto", "json", "text"] = "auto"
    """`json`: one JSON object a line. `text`: lines for people. `auto`: text if stderr is a terminal, JSON otherwise."""


def flags_with_level(flags: list[str] | None, log_level: str | None) -> list[str]:
    """Return the `--set` flags of a command, followed by one for its option `--log-level` if the option is given."""
    return [*(flags or []), *([] if log_level is None else [f"log.level={log_level}"])]
