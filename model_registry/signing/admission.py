"""Decides whether a version may be loaded, before a byte of it is: the policy held against the evidence beside the version.

What proved a version is kept on disk and proves it again when the registry is down. Nothing is trusted because it lies there:
it is checked against the policy's keys each time, like what comes from the registry.
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

_NOTHING = b"{}"  # kept where an optional signature was looked for and there was none


class Admission:
    """Without a policy every version may be loaded, and no registry is asked."""

    def check(self, store: Store, digest: str, version: str, now: datetime) -> str | None:  # noqa: ARG002 - see `PolicyAdmission`
        """The id of the key that vouches for a manifest: none is asked for."""
        return None


class PolicyAdmission(Admission):
    """A policy, and the folder that keeps what proved versions to it, or None. Any number of processes may share the folder."""

    def __init__(self, policy: Policy, folder: Path | None) -> None:
        self._policy = policy
        self._signatures = SignatureCache(folder)
        self._comparisons = SignatureCache(folder and folder / "comparisons")

    def check(self, store: Store, digest: str, version: str, now: datetime) -> str | None:
        """The id of the key that vouches for a manifest as this version of the repository's model; None: it needs none.

        Asks the store only where the proof is not on disk. Raises Refused where the version must not be loaded, Unreachable,
        and Corrupt for a damaged list of signatures.
        """
        if digest in self._policy.denied:
            hint = f"promote another version, or take the digest out of {self._policy.path}"
            raise Refused(f"{digest} is denied by the policy {self._policy.path}", hint)
        signer = self._signer(store, digest, f"{store.repository.rpartition('/')[2]}:{version}", now)
        self.compared(store, digest, now)
        return signer

    def compared(self, store: Store, digest: str, now: datetime) -> str | None:
        """The id of the key that signed the comparison that a manifest passed; None: it needs none. Raises as `check` does."""
        if not self._policy.compared:
            return None
        kept = self._comparisons.kept(digest)
        if kept and (known := comparison_attestation.evaluate(StoredBundle("", kept), digest, self._policy.keys, now)[0]):
            return known
        faults: list[str] = []
        for found in signatures.collect(store, digest):
            key_id, fault = comparison_attestation.evaluate(found, digest, self._policy.keys, now)
            if key_id:
                log.info("%s has passed a comparison, says the trusted key %r", digest, key_id)
                self._comparisons.keep(digest, found.data)
                return key_id
            faults += [fault] if fault else []
        raise comparison_attestation.not_passed(store.repository, digest, self._policy.path, faults)

    def _signer(self, store: Store, digest: str, name: str, now: datetime) -> str | None:
        kept = self._signatures.kept(digest)
        if kept and (known := self._judge(StoredBundle("", kept), digest, name, now)[0]):
            return known
        try:
            return self._ask(store, digest, name, now)
        except RegistryError as error:
            if error.transient and kept == _NOTHING and not self._policy.required:
                return None
            raise

    def _ask(self, store: Store, digest: str, name: str, now: datetime) -> str | None:
        faults: list[str] = []
        for found in signatures.collect(store, digest):
            key_id, fault = self._judge(found, digest, name, now)
            if key_id:
                log.info("%s is signed by the trusted key %r", digest, key_id)
                self._signatures.keep(digest, found.data)
                return key_id
            faults += [fault] if fault else []
        if faults or self._policy.required:
            raise signatures.unsigned(store.repository, digest, faults)
        self._signatures.keep(digest, _NOTHING)
        return None

    def _judge(self, found: StoredBundle, digest: str, name: str, now: datetime) -> tuple[str, str]:
        return signatures.evaluate(found, digest, self._policy.keys, now, name, named=self._policy.named)


def admission(policy: Path | None, cache: Path) -> Admission:
    """What a policy file asks for; what proved a version is kept in the cache folder. Raises BadFile."""
    return Admission() if policy is None else PolicyAdmission(read(policy), cache / "proofs")
