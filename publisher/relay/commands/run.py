"""`publisher run`: copies topics into this region until SIGTERM."""

from publisher.process import logs
from publisher.process.command_line import Config, LogLevel, Set
from publisher.relay import service
from publisher.relay.settings import load


def run(path: Config, flags: Set = None, log_level: LogLevel = "INFO") -> None:
    """Copy topics into this region, each record exactly once, until SIGTERM."""
    settings = load(path, flags or []).settings
    logs.configure({"publisher": settings.name}, log_level.upper())
    service.run(settings)
