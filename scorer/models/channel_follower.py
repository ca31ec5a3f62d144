"""The channel as one scorer last polled it: its target, and the last good target."""

import logging
import time

from model_registry.cache import Cache
from model_registry.channels import channel
from model_registry.channels.channel import Resolution
from model_registry.errors import RegistryError
from model_registry.stores.base import Store
from scorer.settings.model import ModelSettings

log = logging.getLogger(__name__)

RESOLVE_SECONDS = 60.0  # interval at which even an unchanged tag is resolved: it may have been moved and moved back


class ChannelFollower:
    """A follower of the configured channel. One thread polls it; any thread may call `forget`."""

    def __init__(self, settings: ModelSettings, store: Store, cache: Cache) -> None:
        self._tag = settings.tag
        self._key = f"{settings.source}:{settings.tag}"
        self._store = store
        self._cache = cache
        self._validator: str | None = None
        self._resolved_at = 0.0
        self._noted: Resolution | None = None
        self.named: Resolution | None = None  # at the last poll

    def poll(self) -> tuple[Resolution, str] | None:
        """Return the target of the channel and the reason of its move; None if it cannot have changed. Raises RegistryError."""
        validator = self._store.validator(self._tag)
        now = time.monotonic()
        if validator == self._validator and now < self._resolved_at + RESOLVE_SECONDS:
            return None
        resolution = channel.resolve(self._store, self._tag)
        reason = self._find_reason(resolution)
        self._validator = validator
        self._resolved_at = now
        self.named = resolution
        return resolution, reason

    def forget(self) -> None:
        """Resolve the channel at the next poll in any case."""
        self._validator = None

    def known_good(self) -> Resolution | None:
        """Return the target that was served last, also before a restart; None if no target was served."""
        return self._cache.recall(self._key)

    def note(self, serving: Resolution, label: str) -> None:
        """Record the served target, also after a rollback: a start without a usable channel serves it."""
        if serving == self._noted:
            return
        try:
            self._cache.remember(self._key, serving)
            self._noted = serving
        except RegistryError as error:
            log.warning("could not record %s as the last good version: %s", label, error)

    def _find_reason(self, resolution: Resolution) -> str:
        if not resolution.revision:
            return ""
        moves = channel.history(self._store, self._tag, after=resolution.revision - 1)
        return next((move.reason for move in moves if move.revision == resolution.revision), "")
