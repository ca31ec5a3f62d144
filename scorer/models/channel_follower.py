"""Polling of the configured channel (a tag in the model registry), and storage of the versions that were served last."""

import logging
import math
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
    """Follows the configured channel, the tag in the registry that names the versions to serve.

    One thread calls `poll`; any thread may call `resolve_on_next_poll`.
    """

    def __init__(self, settings: ModelSettings, store: Store, cache: Cache) -> None:
        self._tag = settings.tag
        self._key = f"{settings.source}:{settings.tag}"
        self._store = store
        self._cache = cache
        self._validator: str | None = None
        self._resolved_at = 0.0
        self._noted: Resolution | None = None
        self.named: Resolution | None = None  # at the last poll
        self.polled_at = -math.inf  # when the last poll that succeeded began, in monotonic seconds

    def poll(self) -> tuple[Resolution, str] | None:
        """Return the versions that the channel names now, and the reason of its last move; None if nothing has changed.

        Raises:
            RegistryError: the channel cannot be resolved.
        """
        # An unchanged tag is resolved again from time to time.
        began = time.monotonic()
        validator = self._store.validator(self._tag)
        now = time.monotonic()
        if validator == self._validator and now < self._resolved_at + RESOLVE_SECONDS:
            self.polled_at = began
            return None
        resolution = channel.resolve(self._store, self._tag)
        reason = self._find_reason(resolution)
        self._validator = validator
        self._resolved_at = now
        self.named = resolution
        self.polled_at = began
        return resolution, reason

    def resolve_on_next_poll(self) -> None:
        """Make the next poll resolve the channel even if its tag is unchanged."""
        self._validator = None

    def known_good(self) -> Resolution | None:
        """Return the versions that this scorer served last, possibly before a restart; None if they are unknown."""
        return self._cache.load_resolution(self._key)

    def save_served(self, serving: Resolution, label: str) -> None:
        """Store that these versions are served now. If the channel is unusable at a later start, they are served again.

        `label` names the versions in the log.
        """
        if serving == self._noted:
            return
        try:
            self._cache.save_resolution(self._key, serving)
            self._noted = serving
        except RegistryError as error:
            log.warning("could not record %s as the last good version: %s", label, error)

    def _find_reason(self, resolution: Resolution) -> str:
        if not resolution.revision:
            return ""
        moves = channel.history(self._store, self._tag, after=resolution.revision - 1)
        return next((move.reason for move in moves if move.revision == resolution.revision), "")
