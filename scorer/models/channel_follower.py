"""The channel as one scorer last saw it: its target, and the last good target."""

import logging
import time

from model_registry.cache import Cache
from model_registry.channels import channel
from model_registry.channels.channel import Resolution
from model_registry.errors import RegistryError
from model_registry.stores.base import Store
from scorer.settings.model import ModelSettings

log = logging.getLogger(__name__)

LOOK_SECONDS = 60.0  # after so long a channel is resolved though its tag names what it did: it may have gone and come back


class ChannelFollower:
    """Polled by one thread; any thread may call `forget`."""

    def __init__(self, settings: ModelSettings, store: Store, cache: Cache) -> None:
        self._tag = settings.tag
        self._key = f"{settings.source}:{settings.tag}"
        self._store = store
        self._cache = cache
        self._validator: str | None = None
        self._resolved_at = 0.0
        self._noted: Resolution | None = None
        self.named: Resolution | None = None  # at the last look

    def look(self) -> tuple[Resolution, str] | None:
        """Return the target of the channel and the reason of its move; None if it cannot have changed. Raises RegistryError."""
        validator, now = self._store.validator(self._tag), time.monotonic()
        if validator == self._validator and now < self._resolved_at + LOOK_SECONDS:
            return None
        found = channel.resolve(self._store, self._tag)
        reason = self._reason(found)
        self._validator, self._resolved_at, self.named = validator, now, found
        return found, reason

    def forget(self) -> None:
        """Resolve the channel at the next poll in any case."""
        self._validator = None

    def known_good(self) -> Resolution | None:
        """The target that was served last, also before a restart; None if there is none."""
        return self._cache.recall(self._key)

    def note(self, serving: Resolution, label: str) -> None:
        """Record the served target, including one that was rolled back to: a start falls back to it."""
        if serving == self._noted:
            return
        try:
            self._cache.remember(self._key, serving)
            self._noted = serving
        except RegistryError as error:
            log.warning("%s is not noted as known good: %s", label, error)

    def _reason(self, resolution: Resolution) -> str:
        if not resolution.revision:
            return ""
        moves = channel.history(self._store, self._tag, after=resolution.revision - 1)
        return next((move.reason for move in moves if move.revision == resolution.revision), "")
