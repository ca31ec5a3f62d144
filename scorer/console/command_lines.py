"""The commands that do the same as the console's forms, as a person would type them. Pure.

Where Kafka asks who one is, `client.properties` stands for a file with the properties of the person's own client.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from scorer.settings import Settings


@dataclass(frozen=True, slots=True)
class CommandLines:
    """For one configuration; `config` is its file as it was named."""

    settings: Settings
    config: str

    def promote(self, channel: str, version: str, reason: str, revision: int) -> str:
        """`model-registry promote`; `revision` is what the channel is expected to be at."""
        what = ["promote", self.settings.model.source, "--to", version, "--channel", channel]
        return self._registry(what, reason, revision)

    def rollback(self, channel: str, to_revision: int | None, reason: str, revision: int) -> str:
        """`model-registry rollback`, to a revision or to what was served before."""
        what = ["rollback", self.settings.model.source, "--channel", channel]
        return self._registry([*what, *(["--to-revision", str(to_revision)] if to_revision else [])], reason, revision)

    def replay(self, reasons: Sequence[str], *, dry_run: bool) -> str:
        """`scorer replay`."""
        chosen = [word for reason in reasons for word in ("--reason", reason)]
        return shlex.join(["scorer", "replay", self.config, *chosen, *(["--dry-run"] if dry_run else [])])

    def _registry(self, what: list[str], reason: str, revision: int) -> str:
        model = self.settings.model
        access = [
            *(["--plain-http"] if model.plain_http is True else []),
            *(f"--plain-http-host={host}" for host in (model.plain_http if isinstance(model.plain_http, list) else [])),
            *(["--ca-file", str(model.ca_file)] if model.ca_file else []),
        ]
        kafka = self.settings.kafka
        secured = ["--kafka-config", "client.properties"] if kafka.security.protocol != "PLAINTEXT" else []
        told = ["--kafka", kafka.bootstrap_servers, *secured, "--status-topic", self.settings.status_topic]
        expected = ["--reason", reason, "--expect-revision", str(revision)]
        return shlex.join(["model-registry", *what, *expected, *access, *told, "--wait"])
