"""Access to the model registry and the local cache of versions, as the scorer's settings configure them."""

from datetime import UTC, datetime

from model_registry.cache import Cache
from model_registry.channels import channel
from model_registry.channels.channel import Resolution
from model_registry.oci import reference
from model_registry.package import Package
from model_registry.signing.admission import admission
from model_registry.signing.keys import PrivateKey, read_password, read_private
from model_registry.stores.base import Store, StoreOptions
from model_registry.stores.open import open_store
from scorer.settings import Settings
from scorer.settings.model import ModelSettings

SILENT_SECONDS = 10.0  # time limit of a request: an unresponsive registry delays the start with the last good version this long


def open_source(settings: Settings) -> Store:
    """Open the configured model repository. No connection is made. Raises RegistryError for an invalid reference or option."""
    model = settings.model
    options = StoreOptions(plain_http=model.plain_http, ca_file=model.ca_file, timeout_seconds=SILENT_SECONDS)
    return open_store(reference.parse(model.source), options=options)


def move_key(settings: Settings) -> PrivateKey | None:
    """Return the key that signs channel moves; None if no key is configured. Raises BadFile."""
    rollout = settings.rollout
    return None if rollout.key_file is None else read_private(rollout.key_file, read_password(rollout.password_file))


def open_cache(model: ModelSettings) -> Cache:
    """Open the local cache of versions with its configured limits."""
    return Cache(model.cache, max_bytes=model.cache_bytes, max_version_bytes=model.max_bytes)


def pull_version(settings: Settings) -> tuple[Package, Resolution]:
    """Resolve `model.tag`, check that the signing policy admits the version, and fetch its package.

    The package comes from the cache if possible, otherwise from the registry.

    Raises:
        RegistryError: The version does not exist, is not admitted or cannot be pulled.
    """
    store = open_source(settings)
    cache = open_cache(settings.model)
    resolution = channel.resolve(store, settings.model.tag)
    admission(settings.model.policy, cache.root).check(store, resolution.digest, resolution.version, datetime.now(UTC))
    return cache.fetch(store, resolution.digest, version=resolution.version), resolution
