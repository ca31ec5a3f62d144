"""The settings of rollouts (`rollout`): the controller's address, and the private key for signatures of channel moves.

A channel move makes a channel name another version.
"""

from pathlib import Path

from pydantic import model_validator

from publisher.runtime.configuration import Listen, Section


class RolloutSettings(Section):
    """The address of the rollout controller, and the private key that signs each move of the channel to another version."""

    listen: Listen = "127.0.0.1:9764"
    """The address of `/livez`, `/readyz` and `/metrics` of `scorer rollout run`."""
    key_file: Path | None = None
    """The private key that signs moves of the channel, for the controller, the console, `promote` and `rollback`."""
    password_file: Path | None = None
    """The file with the key's password. Alternatively, set the environment variable MODEL_REGISTRY_KEY_PASSWORD."""

    @model_validator(mode="after")
    def _password_needs_key(self) -> "RolloutSettings":
        if self.password_file is not None and self.key_file is None:
            raise ValueError("password_file needs key_file; set key_file, or leave password_file out")
        return self
