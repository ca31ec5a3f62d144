"""The feed of the training page: one thread that reads the attestations of the newest versions.

After an error the feed keeps the earlier results, and retries.
"""

# Attestations are never removed from a version. A version is therefore read again only if its list of referrers has changed, or
# if a trusted key has expired.

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from model_registry.errors import NotFound, RegistryError
from model_registry.oci import manifest, tags
from model_registry.oci.manifest import Descriptor
from model_registry.signing import attestation, referrers
from model_registry.signing.signatures import TrustedKey
from model_registry.stores.base import Store
from scorer.console.state import ConsoleState
from scorer.console.training.attestations import RUN_VERSION, AttestationLibrary, VersionAttestations, collect_attestations

POLL_SECONDS = 5.0
VERSIONS = 200  # newest versions that are read
RECENT = 20  # number of the newest versions that every poll checks, and of the other versions that it checks in turn
SOURCE = "attestations"


@dataclass(frozen=True, slots=True)
class _ReadVersion:
    """The attestations of a version, with the referrers and trusted keys at the time of reading.

    Attributes:
        listed: The digests of the version's referrers; None if they could not be listed.
        trusted: The ids of the keys that were trusted.
    """

    attestations: VersionAttestations
    listed: tuple[str, ...] | None
    trusted: frozenset[str]


class AttestationReader:
    """Reads the attestations of the `most` newest versions of a repository.

    The attestations of a version are read again only if they may have changed.
    """

    def __init__(self, store: Store, keys: Sequence[TrustedKey], most: int = VERSIONS) -> None:
        self._store = store
        self._keys = keys
        self._most = most
        self._versions: dict[str, _ReadVersion] = {}
        self._turn = 0

    def poll(self, now: datetime) -> Iterator[AttestationLibrary]:
        """Poll the versions one by one. After each change, and once at the end, yield the attestations of all versions.

        Raises:
            RegistryError: If the registry is unavailable. The next call continues with the attestations that were read before
                the error.
        """
        every = newest_first(tags.versions(self._store.tags()))
        wanted = every[: self._most]
        left_out = max(0, len(every) - self._most)
        self._versions = {version: earlier for version, earlier in self._versions.items() if version in set(wanted)}
        trusted = frozenset(key.id for key in self._keys if key.not_after is None or now < key.not_after)
        for version in self._due(wanted, trusted):
            if self._read(version, trusted, now):
                yield self._library(wanted, left_out, read=False)
        yield self._library(wanted, left_out, read=True)

    def _due(self, wanted: Sequence[str], trusted: frozenset[str]) -> Iterable[str]:
        """Return the versions among `wanted` to check for new attestations in this poll."""
        # These are the RECENT newest versions, RECENT of the others in turn, and all versions that have not been read yet or
        # were read with other trusted keys.
        later = wanted[RECENT:]
        turn = {later[(self._turn + k) % len(later)] for k in range(RECENT)} if later else set()
        self._turn = (self._turn + RECENT) % len(later) if later else 0
        fresh = {
            version for version in wanted if (earlier := self._versions.get(version)) is None or earlier.trusted != trusted
        }
        return [version for version in wanted if version in fresh or version in turn or version in wanted[:RECENT]]

    def _read(self, version: str, trusted: frozenset[str], now: datetime) -> bool:
        """Read the attestations of a version if they may have changed. Return whether they differ from those read before."""
        # They may have changed if the version's referrers or the trusted keys have changed.
        earlier = self._versions.get(version)
        digest = earlier.attestations.digest if earlier else ""
        listed = None
        try:
            digest = digest or self._store.resolve(version).digest
            descriptors = referrers.listed(self._store, digest)
            listed = tuple(sorted(each.digest for each in descriptors))
            if earlier is not None and (earlier.listed, earlier.trusted) == (listed, trusted):
                return False
            attestations = collect_attestations(
                version, digest, attestation.iter_attestations(self._store, digest, self._keys, now)
            )
            attestations = replace(attestations, attested=_first_stored(descriptors))
        except NotFound:  # deleted since its tag was listed
            return self._versions.pop(version, None) is not None
        except RegistryError as error:
            if error.transient:
                raise
            attestations = VersionAttestations(version, digest, fault=str(error))
        self._versions[version] = _ReadVersion(attestations, listed, trusted)
        return earlier is None or earlier.attestations != attestations

    def _library(self, wanted: Sequence[str], left_out: int, *, read: bool) -> AttestationLibrary:
        versions = [self._versions[each].attestations for each in wanted if each in self._versions]
        return AttestationLibrary(tuple(sorted(versions, key=_age, reverse=True)), left_out, read, bool(self._keys))


class TrainingFeed:
    """Poll the attestations in a thread that runs until `close`, and write them to the console's state."""

    def __init__(self, store: Store, state: ConsoleState, keys: Sequence[TrustedKey]) -> None:
        self._reader = AttestationReader(store, keys)
        self._state = state
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="training", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and wait until it has ended."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._poll()
            except RegistryError as error:
                with self._state.lock:
                    self._state.record_error(SOURCE, str(error), error.hint, time.time())
            self._closing.wait(POLL_SECONDS)

    def _poll(self) -> None:
        for library in self._reader.poll(datetime.now(UTC)):
            with self._state.lock:
                if library.read:
                    self._state.clear_error(SOURCE)
                before = self._state.training
                after = replace(library, read=library.read or before.read)
                if after != before:
                    self._state.training = after
                    self._state.changed()
            if self._closing.is_set():
                return


def _first_stored(listed: Sequence[Descriptor]) -> datetime | None:
    """Return the time of the earliest attestation in a list of referrers; None if the list contains no time."""
    times = []
    for each in listed:
        with contextlib.suppress(ValueError, OverflowError):
            times.append(datetime.fromisoformat(each.annotations.get(manifest.CREATED, "")).astimezone(UTC))
    return min(times, default=None)


def _age(version: VersionAttestations) -> tuple[str, float]:
    """Return a sort key that puts older versions first: the date in the version's name, then its first attestation time."""
    # Only the name of a version of a training run begins with a date. All other versions come first.
    is_run = RUN_VERSION.fullmatch(version.version)
    return version.version[:8] if is_run else "", version.attested.timestamp() if version.attested else 0.0


def newest_first(versions: Iterable[str]) -> list[str]:
    """Sort versions: those of training runs first, from the newest to the oldest date, then all others by name, descending."""
    runs = [version for version in versions if RUN_VERSION.fullmatch(version)]
    rest = sorted(set(versions) - set(runs), reverse=True)
    return [*sorted(runs, reverse=True), *rest]
