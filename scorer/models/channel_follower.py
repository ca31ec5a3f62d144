"""The model's tag, as one scorer has last seen it: what it names, and what is known to be good of what it has named."""

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
    """One thread looks; any may `forget`."""

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
        """What the tag names, and why it was moved there; None where nothing can have changed. Raises RegistryError."""
        validator, now = self._store.validator(self._tag), time.monotonic()
        if validator == self._validator and now < self._resolved_at + LOOK_SECONDS:
            return None
        found = channel.resolve(self._store, self._tag)
        reason = self._reason(found)
        self._validator, self._resolved_at, self.named = validator, now, found
        return found, reason

    def forget(self) -> None:
        """Resolve it at the next look, whatever that sees."""
        self._validator = None

    def known_good(self) -> Resolution | None:
        """What of it was served last, now or before a restart; None where nothing was."""
        return self._cache.recall(self._key)

    def note(self, serving: Resolution, label: str) -> None:
        """This is served, a version that was gone back to included: a start falls back on it."""
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
