"""Decides whether a version may be loaded, before any of its content is read, by the policy and the signatures of the version.

Accepted bundles are cached on disk, so that a version is accepted again while the registry is unavailable. Cached bundles
are not trusted: they are verified against the policy's keys each time, like those from the registry.
"""

import logging
from datetime import datetime
from pathlib import Path

from model_registry.errors import Refused, RegistryError
from model_registry.signing import comparison_attestation, signatures
from model_registry.signing.policy import Policy, read
from model_registry.signing.signature_cache import SignatureCache
from model_registry.signing.signatures import StoredBundle
from model_registry.stores.base import Store

log = logging.getLogger(__name__)

_UNSIGNED = b"{}"  # cached if a signature is optional and the store has none


class Admission:
    """Accepts every version without asking the registry: there is no policy."""

    def check(self, store: Store, digest: str, version: str, now: datetime) -> str | None:  # noqa: ARG002 - see `PolicyAdmission`
        """Return None: no key is needed."""
        return None


class PolicyAdmission(Admission):
    """Accepts versions by a policy. Any number of processes may share the cache folder.

    Args:
        folder: The cache of accepted bundles; None disables it.
    """

    def __init__(self, policy: Policy, folder: Path | None) -> None:
        self._policy = policy
        self._signatures = SignatureCache(folder)
        self._comparisons = SignatureCache(folder and folder / "comparisons")

    def check(self, store: Store, digest: str, version: str, now: datetime) -> str | None:
        """Return the id of the key that signed a manifest as this version of the repository's model; None if none is needed.

        The store is asked only if no cached bundle is valid.

        Raises:
            Refused: The version must not be loaded.
            Unreachable: The store does not answer.
            Corrupt: The list of signatures is damaged.
        """
        if digest in self._policy.denied:
            hint = f"promote another version, or take the digest out of {self._policy.path}"
            raise Refused(f"{digest} is denied by the policy {self._policy.path}", hint)
        signer = self._find_signer(store, digest, f"{store.repository.rpartition('/')[2]}:{version}", now)
        self.compared(store, digest, now)
        return signer

    def compared(self, store: Store, digest: str, now: datetime) -> str | None:
        """Return the id of the key that signed the passed comparison of a manifest; None if none is needed.

        Raises as `check` does.
        """
        if not self._policy.compared:
            return None
        cached = self._comparisons.read(digest)
        if cached and (key_id := comparison_attestation.evaluate(StoredBundle("", cached), digest, self._policy.keys, now)[0]):
            return key_id
        faults: list[str] = []
        for stored in signatures.collect(store, digest):
            key_id, fault = comparison_attestation.evaluate(stored, digest, self._policy.keys, now)
            if key_id:
                log.info("%s has passed a comparison that the trusted key %r signed", digest, key_id)
                self._comparisons.write(digest, stored.data)
                return key_id
            faults += [fault] if fault else []
        raise comparison_attestation.not_passed(store.repository, digest, self._policy.path, faults)

    def _find_signer(self, store: Store, digest: str, name: str, now: datetime) -> str | None:
        cached = self._signatures.read(digest)
        if cached and (key_id := self._evaluate(StoredBundle("", cached), digest, name, now)[0]):
            return key_id
        try:
            return self._ask_store(store, digest, name, now)
        except RegistryError as error:
            if error.transient and cached == _UNSIGNED and not self._policy.required:
                return None
            raise

    def _ask_store(self, store: Store, digest: str, name: str, now: datetime) -> str | None:
        faults: list[str] = []
        for stored in signatures.collect(store, digest):
            key_id, fault = self._evaluate(stored, digest, name, now)
            if key_id:
                log.info("%s is signed by the trusted key %r", digest, key_id)
                self._signatures.write(digest, stored.data)
                return key_id
            faults += [fault] if fault else []
        if faults or self._policy.required:
            raise signatures.unsigned(store.repository, digest, faults)
        self._signatures.write(digest, _UNSIGNED)
        return None

    def _evaluate(self, stored: StoredBundle, digest: str, name: str, now: datetime) -> tuple[str, str]:
        return signatures.evaluate(stored, digest, self._policy.keys, now, name, named=self._policy.named)


def admission(policy: Path | None, cache: Path) -> Admission:
    """Return the admission for a policy file; accepted bundles are cached in the cache folder. Raises BadFile."""
    return Admission() if policy is None else PolicyAdmission(read(policy), cache / "proofs")
