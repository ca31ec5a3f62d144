"""The program `publisher`."""

from publisher.process import command_line

VERBS = {
    "run": "publisher.relay.commands.run:run",
    "check": "publisher.relay.commands.check:check",
    "status": "publisher.relay.commands.status:status",
    "checkpoint": "publisher.relay.commands.checkpoint:app",
    "audit": "publisher.relay.commands.audit:audit",
    "failover": "publisher.failover.command:failover",
}
app = command_line.program("Copy Kafka topics between regions, exactly once, and count what was lost or doubled.", VERBS)


def main() -> None:
    command_line.run(app)
