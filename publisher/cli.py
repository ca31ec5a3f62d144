"""The command line of `publisher`: its commands, and its entry point."""

from publisher.runtime import command_line

VERBS = {
    "run": "publisher.commands.run:run",
    "check": "publisher.commands.check:check",
    "status": "publisher.commands.status:status",
    "checkpoint": "publisher.commands.checkpoint:app",
    "audit": "publisher.commands.audit:audit",
    "failover": "publisher.commands.failover:failover",
}
app = command_line.program("Copy Kafka topics between regions, exactly once, and count what was lost or doubled.", VERBS)


def main() -> None:
    """Run the `publisher` command."""
    command_line.run(app)
