"""Decides whether a version may be loaded, before a byte of it is: the policy held against the evidence beside the version.

What proved a version is kept on disk and proves it again when the registry is down. Nothing is trusted because it lies there:
it is checked against the policy's keys each time, like what comes from the registry.
"""

import contextlib
import logging
import os
from datetime import datetime
from pathlib import Path

from model_registry import files
from model_registry.errors import Refused, RegistryError
from model_registry.oci import digests
from model_registry.stores import Store
from model_registry.trust import bundle, signing
from model_registry.trust.policy import Policy, read
from model_registry.trust.signing import Evidence

log = logging.getLogger(__name__)

KEPT = 1000  # versions whose proofs are kept; some 2 KB each
_NOTHING = b"{}"  # kept where an optional signature was looked for and there was none


class Admission:
    """Without a policy every version may be loaded, and no registry is asked."""

    def check(self, store: Store, digest: str, version: str, now: datetime) -> str | None:  # noqa: ARG002 - see `Gate`
        """The id of the key that vouches for a manifest: none is asked for."""
        return None


class Gate(Admission):
    """A policy, and the folder that keeps what proved versions to it, or None. Any number of processes may share the folder."""

    def __init__(self, policy: Policy, folder: Path | None) -> None:
        self._policy = policy
        self._folder = folder

    def check(self, store: Store, digest: str, version: str, now: datetime) -> str | None:
        """The id of the key that vouches for a manifest as this version of the repository's model; None: it needs none.

        Asks the store only where the proof is not on disk. Raises Refused where the version must not be loaded, Unreachable,
        and Corrupt for a damaged list of signatures.
        """
        if digest in self._policy.denied:
            hint = f"promote another version, or take the digest out of {self._policy.path}"
            raise Refused(f"{digest} is denied by the policy {self._policy.path}", hint)
        name = f"{store.repository.rpartition('/')[2]}:{version}"
        kept = self._kept(digest)
        if kept and (known := self._judge(Evidence("", kept), digest, name, now)[0]):
            return known
        try:
            return self._ask(store, digest, name, now)
        except RegistryError as error:
            if error.transient and kept == _NOTHING and not self._policy.required:
                return None
            raise

    def _ask(self, store: Store, digest: str, name: str, now: datetime) -> str | None:
        faults: list[str] = []
        for found in signing.collect(store, digest):
            key_id, fault = self._judge(found, digest, name, now)
            if key_id:
                log.info("%s is signed by the trusted key %r", digest, key_id)
                self._keep(digest, found.data)
                return key_id
            faults += [fault] if fault else []
        if faults or self._policy.required:
            raise signing.unsigned(store.repository, digest, faults)
        self._keep(digest, _NOTHING)
        return None

    def _judge(self, found: Evidence, digest: str, name: str, now: datetime) -> tuple[str, str]:
        return signing.judge(found, digest, self._policy.keys, now, name, named=self._policy.named)

    def _kept(self, digest: str) -> bytes | None:
        if self._folder is None:
            return None
        try:
            path = _proof(self._folder, digest)
            with path.open("rb") as stream:
                found = stream.read(bundle.MAX_BYTES + 1)
        except OSError:
            return None
        with contextlib.suppress(OSError):  # read-only: then nothing is tidied up either
            os.utime(path)
        return found

    def _keep(self, digest: str, proof: bytes) -> None:
        """Keep a proof; the longest unused go where there are too many. On a full disk none is kept."""
        if self._folder is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            files.replace(_proof(self._folder, digest), [proof])
        except OSError as error:
            log.warning("the proof of %s is not kept: %s", digest, error)
        with contextlib.suppress(OSError):  # another process tidies up as well
            for path in sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)[:-KEPT]:
                path.unlink()


def admission(policy: Path | None, cache: Path) -> Admission:
    """What a policy file asks for; what proved a version is kept in the cache folder. Raises BadFile."""
    return Admission() if policy is None else Gate(read(policy), cache / "proofs")


def _proof(folder: Path, digest: str) -> Path:
    return folder / f"{digests.hex_of(digest)}.json"
