"""Decides from the policy and a version's signatures whether the version may be loaded, before the version's content is read.

The signed bundle of an accepted version is cached on disk, so that the version is accepted again while the registry is
unavailable. A cached bundle is verified each time, like a bundle from the registry.
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

_UNSIGNED = b"{}"  # cached in place of a bundle if signatures are optional and the store has none for the version


class Admission:
    """Decides whether a version may be loaded. This class, used without a policy, accepts every version."""

    def check(self, store: Store, digest: str, version: str, now: datetime) -> str | None:  # noqa: ARG002 - see `PolicyAdmission`
        """Return None, because this class accepts every version. Subclasses return the signing key's id or raise an error."""
        return None


class PolicyAdmission(Admission):
    """Accepts only the versions that a policy allows. Any number of processes may share the cache folder.

    Args:
        policy: The policy.
        folder: The folder in which the signature bundles of accepted versions are cached; None disables the cache.
    """

    def __init__(self, policy: Policy, folder: Path | None) -> None:
        self._policy = policy
        self._signatures = SignatureCache(folder)
        self._comparisons = SignatureCache(folder and folder / "comparisons")

    def check(self, store: Store, digest: str, version: str, now: datetime) -> str | None:
        """Check whether the policy allows loading a version; raise an error if not.

        Returns the id of the trusted key that signed the version. Returns None if the version has no signature and the policy
        requires none.

        Raises:
            Refused: The policy does not allow the version.
            Unreachable: The store does not answer.
            Corrupt: The list of signatures is damaged.
        """
        # If a cached bundle is valid, the store is not read.
        if digest in self._policy.denied:
            hint = f"promote another version, or remove the digest from {self._policy.path}"
            raise Refused(f"{digest} is denied by the policy {self._policy.path}", hint)
        signer = self._find_signer(store, digest, f"{store.repository.rpartition('/')[2]}:{version}", now)
        self.check_comparison(store, digest, now)
        return signer

    def check_comparison(self, store: Store, digest: str, now: datetime) -> str | None:
        """Check that a trusted key attested that this version passed a comparison with the champion.

        Returns the id of the key; None if the policy requires no such comparison. Raises the same errors as `check`.
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
    """Return the admission for a policy file. If `policy` is None, the admission accepts every version.

    The signature bundles of accepted versions are cached below the folder `cache`. Raises BadFile if the policy cannot be read.
    """
    return Admission() if policy is None else PolicyAdmission(read(policy), cache / "proofs")
