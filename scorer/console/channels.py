"""The registry as the console last saw it: channels with their histories, and the versions there are. Plain values."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from model_registry.channels.history import Move
from model_registry.channels.roles import Role


@dataclass(frozen=True, slots=True)
class Channel:
    """A tag that moves: what it names now, and its newest moves, oldest first. `digest` is the champion's."""

    name: str
    version: str
    digest: str
    revision: int
    roles: Sequence[Role] = ()
    moves: Sequence[Move] = ()

    @property
    def move(self) -> Move | None:
        """The move that made it what it is; None where the registry was moved without a history."""
        return next((move for move in self.moves if move.revision == self.revision), None)


@dataclass(frozen=True, slots=True)
class RegistryView:
    """A repository. `read` says whether it was seen at all; `versions` are its tags that never move."""

    repository: str = ""
    channels: dict[str, Channel] = field(default_factory=dict)
    versions: Sequence[str] = ()
    read: bool = False
