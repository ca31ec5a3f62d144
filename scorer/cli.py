"""The program `scorer`: its commands by name."""

from publisher.runtime import command_line

COMMANDS = {
    "run": "scorer.commands.run:run",
    "config": "scorer.commands.config:config",
    "check": "scorer.commands.check:check",
    "compare": "scorer.commands.compare:compare",
    "judge": "scorer.commands.judge:judge",
    "labels": "scorer.commands.labels:labels",
    "status": "scorer.commands.status:status",
    "tables": "scorer.commands.tables:app",
    "emit": "scorer.commands.emit:emit",
    "read": "scorer.commands.read:read",
    "score": "scorer.commands.score:score",
    "tail": "scorer.commands.tail:tail",
    "offsets": "scorer.commands.offsets:offsets",
    "replay": "scorer.commands.replay:replay",
    "rescore": "scorer.commands.rescore:rescore",
    "audit": "scorer.commands.audit:audit",
    "schema": "scorer.commands.schema:schema",
    "bench": "scorer.commands.bench:bench",
    "console": "scorer.commands.console:console",
    "lineage": "scorer.commands.lineage:lineage",
    "promote": "scorer.commands.promote:promote",
    "rollback": "scorer.commands.promote:rollback",
    "rollout": "scorer.commands.rollout:app",
    "train": "scorer.commands.train:app",
    "demo": "scorer.demo.command:demo",
}
app = command_line.program(
    "Score events from Kafka to Kafka, exactly once, with model versions changed while events flow.", COMMANDS
)


def main() -> None:
    """Run the program."""
    from model_registry.errors import RegistryError

    command_line.run(app, RegistryError)
