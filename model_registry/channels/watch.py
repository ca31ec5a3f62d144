"""Moves of a channel as they come."""

from collections.abc import Callable, Iterator

from model_registry.channels import channel
from model_registry.channels.history import Move
from model_registry.errors import NotFound, RegistryError
from model_registry.stores import Store


def moves(store: Store, name: str, after: int, pause: Callable[[RegistryError | None], None]) -> Iterator[Move]:
    """Every move behind revision `after`, for ever. An unchanged channel costs one question to the store a round.

    `pause` is called between two looks, with the error where the store did not answer. A channel that is not there yet may
    come. Raises what is not `transient`.
    """
    seen: str | None = None
    while True:
        failed: RegistryError | None = None
        try:
            validator = store.validator(name)
            if validator != seen:
                for move in channel.history(store, name, after):
                    after = move.revision
                    yield move
                seen = validator
        except NotFound:
            seen = None
        except RegistryError as error:
            if not error.transient:
                raise
            failed = error
        pause(failed)
