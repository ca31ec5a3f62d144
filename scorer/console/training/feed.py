"""The feed of the training view: one thread that reads what is attested about the newest versions.

Attestations are only ever added, so a version is read again when its list of referrers has grown, or when a key has come to its
end. What the registry does not answer is asked for again; what was read stays.
"""

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

LOOK_SECONDS = 5.0
VERSIONS = 200  # newest versions that are looked at
RECENT = 20  # of them, those whose lists are asked for at every look; so many of the others take turns
SOURCE = "attestations"


@dataclass(frozen=True, slots=True)
class _ReadVersion:
    """A version, what lists its attestations was when they were read, and the keys that were trusted then."""

    evidence: VersionAttestations
    listed: tuple[str, ...] | None
    trusted: frozenset[str]


class AttestationReader:
    """Reads the newest versions of a repository, at most `most`, and again only what may have changed."""

    def __init__(self, store: Store, keys: Sequence[TrustedKey], most: int = VERSIONS) -> None:
        self._store = store
        self._keys = keys
        self._most = most
        self._known: dict[str, _ReadVersion] = {}
        self._turn = 0

    def look(self, now: datetime) -> Iterator[AttestationLibrary]:
        """What is known after each version that has changed, and at last after all. Raises Unreachable, and what else the list
        of tags raises; what was read until then is kept."""
        every = newest_first(tags.versions(self._store.tags()))
        wanted, left_out = every[: self._most], max(0, len(every) - self._most)
        self._known = {version: known for version, known in self._known.items() if version in set(wanted)}
        trusted = frozenset(key.id for key in self._keys if key.not_after is None or now < key.not_after)
        for version in self._due(wanted, trusted):
            if self._read(version, trusted, now):
                yield self._library(wanted, left_out, read=False)
        yield self._library(wanted, left_out, read=True)

    def _due(self, wanted: Sequence[str], trusted: frozenset[str]) -> Iterable[str]:
        """The versions whose lists are asked for now: the most recent, some of the others, and all that nothing is known of."""
        later = wanted[RECENT:]
        turn = {later[(self._turn + k) % len(later)] for k in range(RECENT)} if later else set()
        self._turn = (self._turn + RECENT) % len(later) if later else 0
        fresh = {version for version in wanted if (known := self._known.get(version)) is None or known.trusted != trusted}
        return [version for version in wanted if version in fresh or version in turn or version in wanted[:RECENT]]

    def _read(self, version: str, trusted: frozenset[str], now: datetime) -> bool:
        """Whether something else is known of the version than before."""
        known = self._known.get(version)
        digest, listed = known.evidence.digest if known else "", None
        try:
            digest = digest or self._store.resolve(version).digest
            there = referrers.listed(self._store, digest)
            listed = tuple(sorted(each.digest for each in there))
            if known is not None and (known.listed, known.trusted) == (listed, trusted):
                return False
            found = collect_attestations(version, digest, attestation.iter_attestations(self._store, digest, self._keys, now))
            found = replace(found, attested=_first_stored(there))
        except NotFound:  # deleted since its tag was listed
            return self._known.pop(version, None) is not None
        except RegistryError as error:
            if error.transient:
                raise
            found = VersionAttestations(version, digest, fault=str(error))
        self._known[version] = _ReadVersion(found, listed, trusted)
        return known is None or known.evidence != found

    def _library(self, wanted: Sequence[str], left_out: int, *, read: bool) -> AttestationLibrary:
        known = [self._known[each].evidence for each in wanted if each in self._known]
        return AttestationLibrary(tuple(sorted(known, key=_age, reverse=True)), left_out, read, bool(self._keys))


class TrainingFeed:
    """Looks until `close`."""

    def __init__(self, store: Store, state: ConsoleState, keys: Sequence[TrustedKey]) -> None:
        self._reader = AttestationReader(store, keys)
        self._state = state
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="training", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._look()
            except RegistryError as error:
                with self._state.lock:
                    self._state.trouble(SOURCE, str(error), error.hint, time.time())
            self._closing.wait(LOOK_SECONDS)

    def _look(self) -> None:
        for library in self._reader.look(datetime.now(UTC)):
            with self._state.lock:
                if library.read:
                    self._state.well(SOURCE)
                before = self._state.training
                now_known = replace(library, read=library.read or before.read)
                if now_known != before:
                    self._state.training = now_known
                    self._state.changed()
            if self._closing.is_set():
                return


def _first_stored(listed: Sequence[Descriptor]) -> datetime | None:
    """When the first statement of a list was stored; None where the list does not say."""
    times = []
    for each in listed:
        with contextlib.suppress(ValueError, OverflowError):
            times.append(datetime.fromisoformat(each.annotations.get(manifest.CREATED, "")).astimezone(UTC))
    return min(times, default=None)


def _age(found: VersionAttestations) -> tuple[str, float]:
    """Orders runs by their date, those of a day by when they were attested, and other versions before all."""
    named = RUN_VERSION.fullmatch(found.version)
    return found.version[:8] if named else "", found.attested.timestamp() if found.attested else 0.0


def newest_first(versions: Iterable[str]) -> list[str]:
    """Versions that are called as training calls them, by their date; then all others."""
    made = [version for version in versions if RUN_VERSION.fullmatch(version)]
    rest = sorted(set(versions) - set(made), reverse=True)
    return [*sorted(made, reverse=True), *rest]
