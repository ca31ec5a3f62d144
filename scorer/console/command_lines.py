"""Build the CLI commands that are equivalent to the console's forms. Pure."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from scorer.settings import Settings


@dataclass(frozen=True, slots=True)
class CommandLines:
    """Build command lines for one configuration; `config` is the path of the configuration file as given by the user."""

    settings: Settings
    config: str

    def promote(self, channel: str, version: str, reason: str, revision: int) -> str:
        """Return the command `scorer promote`. When run, it fails unless the channel is at `revision`."""
        return self._move(["promote", self.config, "--to", version], channel, reason, revision)

    def rollback(self, channel: str, to_revision: int | None, reason: str, revision: int) -> str:
        """Return the command `scorer rollback`. When run, it fails unless the channel is at `revision`.

        The target of the rollback is `to_revision`; None means the previous revision.
        """
        chosen = ["--to-revision", str(to_revision)] if to_revision else []
        return self._move(["rollback", self.config, *chosen], channel, reason, revision)

    def replay(self, reasons: Sequence[str], *, dry_run: bool) -> str:
        """Return the command `scorer replay` for these reasons; without reasons the command replays all dead letters."""
        chosen = [word for reason in reasons for word in ("--reason", reason)]
        return shlex.join(["scorer", "replay", self.config, *chosen, *(["--dry-run"] if dry_run else [])])

    def ask(self, verb: str, reason: str) -> str:
        """Return the command `scorer rollout VERB`, such as `scorer rollout pause`."""
        return shlex.join(["scorer", "rollout", verb, self.config, "--reason", reason])

    def show(self, run: str) -> str:
        """Return the command `scorer train show` for the id of a training run."""
        return shlex.join(["scorer", "train", "show", "training.yaml", run])

    def inspect(self, version: str) -> str:
        """Return the command `model-registry inspect`, which prints all attestations of a version and their signers."""
        return shlex.join(
            ["model-registry", "inspect", f"{self.settings.model.source}:{version}", "--key", "KEY.pub", "--json"]
        )

    def _move(self, verb: list[str], channel: str, reason: str, revision: int) -> str:
        other = ["--set", f"model.tag={channel}"] if channel != self.settings.model.tag else []
        expected = ["--reason", reason, "--expect-revision", str(revision)]
        return shlex.join(["scorer", *verb, *other, *expected, "--wait"])
