"""The version manager polls the channel, loads the version that the channel names, and swaps the versions between batches.

An unavailable registry never stops scoring. If the channel's champion is refused, the newest good revision of the channel is
served. If only the candidate is refused, the champion answers the candidate's share of the keys.
"""

# A separate thread does all slow work. The scoring thread calls `serve_aspired`, which only exchanges references. These rules
# lead all scorers to the same revision: all scorers therefore write the same records, and no partition returns to an older
# revision when its owner changes. A running scorer usually serves the newest good revision already; a starting scorer loads it.

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from model_registry.channels import channel, roles
from model_registry.channels.channel import Resolution
from model_registry.channels.roles import CHAMPION, Role
from model_registry.channels.signed_move import move_admission
from model_registry.errors import DiskFailed, NotFound, RegistryError
from model_registry.oci import tags
from model_registry.signing.admission import admission
from model_registry.stores.base import Store
from publisher.errors import USAGE, Fatal
from publisher.runtime.abandonable_call import ABANDON_SECONDS
from publisher.runtime.dependency_wait import DISK, MODEL, MODEL_REGISTRY, DependencyUnavailable, Outages
from scorer.backends.base import ModelRefused
from scorer.models import version_policy
from scorer.models.channel_follower import ChannelFollower
from scorer.models.load_guard import LoadGuard, Superseded, Unguarded
from scorer.models.registry_access import open_cache, open_source
from scorer.models.servable import CanaryArm, LoadPackage, Servable, make
from scorer.settings import Settings

log = logging.getLogger(__name__)

RELOAD_SECONDS = 1.0  # interval between attempts to load a served model again
KNOWN_GOOD = "last known good"
JITTER = 0.2  # maximum share by which a poll interval is shortened, so that many scorers do not poll at the same time


@dataclass(slots=True)
class VersionRefusal:
    """A version that this scorer refuses, the reason, and the revision of the channel that named the version."""

    version: str
    reason: str
    revision: int = field(default=0, compare=False)


@dataclass(slots=True)
class _Shared:
    """The state that the scoring thread and the version thread share. The lock is held during every change.

    Attributes:
        named: the state of the channel at the last poll.
        fault: why `named` is refused, for example because its signature is invalid; None if it is accepted.
        accepted_revision: the highest revision of an accepted state of the channel.
        aspired: the versions to serve by role; empty if no state can be served.
        reason: the reason of the channel move that named the aspired versions.
        serving: the served versions by role.
        canary: the candidate's share of the keys, and the served candidate; None if the channel has no candidate.
        ready: the loaded versions by digest.
        refused: the refused versions by digest.
        delayed: the versions by digest whose load failed temporarily, because a dependency failed or the disk is full.
        moving: whether the served versions must be loaded again, because their models were closed and the load function was
            replaced.
    """

    # The aspired versions come from `named`, or from an earlier state of the channel if `named` is refused.

    named: Resolution | None = None
    fault: VersionRefusal | None = None
    accepted_revision: int = 0
    aspired: dict[str, Resolution] = field(default_factory=dict)
    reason: str = ""
    serving: dict[str, Servable] = field(default_factory=dict)
    canary: CanaryArm | None = None
    ready: dict[str, Servable] = field(default_factory=dict)
    refused: dict[str, VersionRefusal] = field(default_factory=dict)
    delayed: dict[str, VersionRefusal] = field(default_factory=dict)
    moving: bool = False


def _failed_dependency(error: RegistryError) -> str:
    """Return the dependency that caused a transient error: the disk (of the model cache) or the model registry."""
    return DISK if isinstance(error, DiskFailed) else MODEL_REGISTRY


class VersionManager:
    """The manager of the versions that one scorer serves: the champion, and the candidate if the channel has one.

    Args:
        settings: the configuration.
        load: the function that loads the model of a package.
        outages: the record of unavailable dependencies.
        on_refused: a function that is called with each refusal, for the metrics.
        lethal: a function that returns why a candidate must not be loaded after earlier crashes; None if it may be loaded.
        candidate: a function that selects, from the roles of the channel, the one whose version is the candidate.
        guard: the guard that loads each version in a trial process before this process loads it.
    """

    # A scorer selects the canary; a shadow process selects the canary or the shadow version.

    def __init__(
        self,
        settings: Settings,
        load: LoadPackage,
        outages: Outages,
        *,
        on_refused: Callable[[VersionRefusal], None] = lambda _: None,
        lethal: Callable[[str], str | None] = lambda _: None,
        candidate: Callable[[Sequence[Role]], Role | None] = roles.find_canary,
        guard: LoadGuard | None = None,
    ) -> None:
        self._settings = settings
        self._load = load
        self._outages = outages
        self._on_refused = on_refused
        self._lethal = lethal
        self._candidate = candidate
        self._guard = guard or Unguarded()
        self._poll_at = 0.0  # time of the next poll while a version is in its trial
        self._store: Store = open_source(settings)
        self._cache = open_cache(settings.model)
        self._tag = ChannelFollower(settings.model, self._store, self._cache)
        self._read_policy()
        self._shared = _Shared()
        self._earlier: Iterator[tuple[Resolution, str]] | None = None  # states of the channel that are still untried
        self._before: int | None = None  # the untried states are older than this revision
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="model-versions", daemon=True)

    def _read_policy(self) -> None:
        policy_file = self._settings.model.policy
        folder = self._cache.root
        self._admission = admission(policy_file, folder)
        self._moves = move_admission(policy_file, folder)

    def start(self) -> None:
        """Load and serve the version that the channel names, or the last good one if it is refused. Then follow the channel.

        Raises:
            DependencyUnavailable: No version can be served at present. The caller may call `start` again later.
            Fatal: The configuration must be corrected, or the channel does not exist.
        """
        try:
            self._load_first()
        except RegistryError as error:
            error_text = f"no model version to serve: {error}"
            if error.transient:
                raise DependencyUnavailable(_failed_dependency(error), error_text, error.hint) from error
            raise Fatal(error_text, error.hint, exit_code=error.exit_code) from error
        self.serve_aspired()
        if not self._shared.serving:
            reasons = "; ".join(f"{refusal.version}: {refusal.reason}" for refusal in self.refusals())
            raise DependencyUnavailable(MODEL, f"no model version to serve: {reasons}", "promote a version that passes")
        champion = self.champion
        if self.refuses_channel:
            log.warning(
                "the channel's version is rejected; serving %s of revision %d instead",
                champion.label,
                champion.resolution.revision,
            )
        self._tag.save_served(champion.resolution, champion.label)
        self._thread.start()

    def _load_first(self) -> None:
        """Load the versions that the channel names. If they are refused, or the registry fails, load earlier versions."""
        failed: RegistryError | None = None
        try:
            self._poll_channel()
        except RegistryError as error:
            failed = error
            if error.exit_code == USAGE:
                raise
            if error.transient:
                if (known_good := self._tag.known_good()) is None:
                    raise
                log.warning("the registry does not answer (%s); starting with the last good version, %s", error, known_good)
                self._aspire(known_good, KNOWN_GOOD)
        self._execute_actions()
        self._aspire_to_earlier()
        if isinstance(failed, NotFound) and not self._shared.aspired and not self._has_history():
            raise failed

    def _has_history(self) -> bool:
        return bool(tags.revisions(self._store.tags(), self._settings.model.tag))

    @property
    def serving(self) -> Mapping[str, Servable]:
        """The versions that score the next batch, by role."""
        return self._shared.serving

    @property
    def champion(self) -> Servable:
        """The champion that scores the next batch."""
        return self._shared.serving[CHAMPION]

    @property
    def canary(self) -> CanaryArm | None:
        """The candidate and its share of the keys for the next batch; None if the channel has no candidate."""
        return self._shared.canary

    @property
    def aspired_revision(self) -> int:
        """The revision of the channel at the last poll, even if its versions are refused or still loading; 0 before a poll."""
        named = self._shared.named
        return named.revision if named else 0

    @property
    def trusted_revision(self) -> float:
        """The highest revision of the channel that this scorer has accepted.

        If the policy requires no signed channel moves, every revision is trusted, and the value is infinity.
        """
        # If a partition was scored by a higher revision, it waits until this scorer serves that revision; see `VersionFence`.
        return self._shared.accepted_revision if self._moves.signed else math.inf

    def registry_revision(self, max_age: float) -> float:
        """Return the revision of the channel in the registry; infinity if no poll of the last `max_age` seconds succeeded."""
        # There are no polls while a version is downloaded or loaded.
        named = self._tag.named
        is_recent = time.monotonic() - self._tag.polled_at <= max_age
        return (
            named.revision if named is not None and is_recent and not self._outages.is_unavailable(MODEL_REGISTRY) else math.inf
        )

    @property
    def refuses_channel(self) -> bool:
        """Whether this scorer refuses the last move of the channel, or a version that the channel names."""
        with self._lock:
            named = self._shared.named
            targets = self._by_role(named).values() if named else ()
            return self._shared.fault is not None or any(target.digest in self._shared.refused for target in targets)

    def refusals(self) -> list[VersionRefusal]:
        """Return the refusals of versions, and of the channel's state."""
        with self._lock:
            return [*self._shared.refused.values(), *([self._shared.fault] if self._shared.fault else [])]

    def delays(self) -> list[VersionRefusal]:
        """Return the aspired versions whose load failed temporarily and is retried, with the reasons."""
        with self._lock:
            aspired = {version.digest for version in self._shared.aspired.values()}
            return [delay for digest, delay in self._shared.delayed.items() if digest in aspired]

    def serve_aspired(self) -> bool:
        """Serve the new versions if all of them are loaded or refused; return whether the served versions changed.

        Call this method between batches.
        """
        shared = self._shared
        with self._lock:
            if not isinstance(version_policy.next_action(self._snapshot()), version_policy.Flip):
                return False
            serving = {}
            for role, aspired in shared.aspired.items():
                if aspired.digest in shared.ready:
                    servable = shared.ready.pop(aspired.digest).in_role(aspired, shared.reason, role)
                    serving[role] = shared.ready[aspired.digest] = servable
            self._serve(serving)
            self._wake.set()
            return True

    def _serve(self, serving: dict[str, Servable]) -> None:
        """Replace the served versions. The caller must hold the lock."""
        champion = serving[CHAMPION]
        role = self._candidate(champion.resolution.roles)
        self._shared.canary = None if role is None else CanaryArm.of(role, serving.get(role.role), champion)
        self._shared.serving = serving

    def reload(self, load: LoadPackage) -> None:
        """Make the version thread load the served versions again with `load`. Later versions are also loaded with `load`.

        The caller must have closed the previous models.
        """
        with self._lock:
            self._load = load
            self._shared.moving = True
            self._shared.ready.clear()
            self._wake.set()

    def _load_again(self) -> None:
        """Load the served versions again, and serve the new models in place of the closed ones."""
        for role, before in self._shared.serving.items():
            if (fresh := self._shared.ready.get(before.digest)) is None:
                package = self._cache.fetch(self._store, before.digest, version=before.resolution.version)
                with self._guard.loading(before.resolution.identity):
                    fresh = replace(before, loaded=self._load(package))
            servable = replace(before, loaded=fresh.loaded)
            with self._lock:
                self._serve({**self._shared.serving, role: servable})
                self._shared.ready[before.digest] = servable
            log.info("%s is loaded into this process", servable.label)
        with self._lock:
            self._shared.moving = False

    def poll_now(self) -> None:
        """Make the version thread poll the registry immediately.

        Call this method if the channel is known to have moved, or if a partition was scored by a newer revision.
        """
        self._tag.resolve_on_next_poll()
        self._wake.set()

    def close(self) -> None:
        """Stop the thread that follows the channel. Wait for a load or request in progress for at most ABANDON_SECONDS."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(ABANDON_SECONDS)

    def _run(self) -> None:
        while not self._closing.is_set():
            poll = RELOAD_SECONDS if self._shared.moving else self._settings.model.poll_seconds
            self._wake.wait(poll * random.uniform(1 - JITTER, 1.0))
            self._wake.clear()
            self._tag.save_served(self.champion.resolution, self.champion.label)
            if self._closing.is_set():
                return
            try:
                if self._shared.moving:
                    self._load_again()
                self._follow()
                self._outages.end(MODEL_REGISTRY)
                self._outages.end(DISK)
            except RegistryError as error:
                self._outages.begin(_failed_dependency(error), error, optional=True)
            except DependencyUnavailable as error:
                log.warning("the channel's new version is not ready yet, %s stays in service: %s", self.champion.label, error)
            except Exception:
                log.exception("checking the channel for a new version failed; %s stays in service", self.champion.label)

    def _follow(self) -> None:
        """Poll the channel, and load the versions that it names. If they are refused, load the versions of an earlier state.

        Raises:
            RegistryError: The registry does not answer, or the channel names no version.
        """
        # If the channel names no version, the earlier states are tried before the error is raised.
        failed: RegistryError | None = None
        try:
            self._poll_channel()
        except RegistryError as error:
            if error.transient:
                raise
            failed = error
        else:
            self._outages.end(MODEL_REGISTRY)
        self._execute_actions()
        self._aspire_to_earlier()
        if failed is not None:
            raise failed

    def _poll_channel(self) -> None:
        """Poll the channel. If the policy accepts its move, plan to serve the named versions; otherwise record a refusal.

        Raises:
            RegistryError: The channel names no version, or the registry does not answer.
        """
        try:
            if (target := self._tag.poll()) is None:
                return
            resolution, reason = target
            if not self._shared.serving:  # every version was refused: a policy or a signature may have been corrected since
                self._read_policy()
                self._forget_refusals()
        except RegistryError as error:
            missing = isinstance(error, NotFound) and self._shared.serving  # some registries replace a tag in two steps
            if not error.transient and not missing:
                self._tag.resolve_on_next_poll()
                self._reject(self._shared.named, None, VersionRefusal(self._settings.model.tag, str(error)), error.hint)
            raise
        try:
            self._moves.check(self._store, self._settings.model.tag, resolution, datetime.now(UTC))
        except RegistryError as error:
            if error.transient:
                self._tag.resolve_on_next_poll()
                raise
            self._reject(resolution, resolution.revision, VersionRefusal(resolution.version, str(error)), error.hint)
            return
        if self._shared.named != resolution or self._shared.fault or not self._shared.aspired:
            self._aspire(resolution, reason)

    def _aspire(self, resolution: Resolution, reason: str) -> None:
        """Plan to serve the versions that the channel names, and forget earlier refusals of these versions."""
        with self._lock:
            aspired = self._by_role(resolution)
            for version in aspired.values():
                self._shared.refused.pop(version.digest, None)
            self._shared.named = resolution
            self._shared.fault = None
            self._shared.accepted_revision = max(self._shared.accepted_revision, resolution.revision)
            self._shared.aspired = aspired
            self._shared.reason = reason
        self._earlier = None
        self._before = resolution.revision

    def _reject(self, named: Resolution | None, before: int | None, refusal: VersionRefusal, hint: str) -> None:
        """Store that a state of the channel is refused, so that only an earlier state may be served.

        Args:
            named: the state to store as the last polled state.
            before: only states with a lower revision are tried; None to try all states.
            refusal: the reason why the state is refused.
            hint: the remedy for the log.
        """
        with self._lock:
            if self._shared.fault == refusal:
                return
            self._shared.named = named
            self._shared.fault = refusal
            self._shared.aspired = {}
        self._earlier = None
        self._before = before
        self._report("the state of the channel", refusal, hint)

    def _report(self, outcome: str, refusal: VersionRefusal, hint: str) -> None:
        log.error("%s is refused: %s%s", outcome, refusal.reason, f" (hint: {hint})" if hint else "")
        self._on_refused(refusal)

    def _forget_refusals(self) -> None:
        with self._lock:
            self._shared.refused.clear()
            self._shared.fault = None
            self._shared.aspired = {}
        self._earlier = None

    def _by_role(self, resolution: Resolution) -> dict[str, Resolution]:
        by_role = {CHAMPION: resolution}
        if role := self._candidate(resolution.roles):
            by_role[role.role] = replace(resolution, digest=role.digest, version=role.version)
        return by_role

    def _aspire_to_earlier(self) -> None:
        """Try the earlier states of the channel, newest first, until one of them is not refused."""
        # Nothing is done if the aspired versions are not refused.
        while True:
            with self._lock:
                if not version_policy.is_refused(self._snapshot()):
                    return
            if self._earlier is None:
                self._earlier = self._earlier_states()
            try:
                state = next(self._earlier, None)
            except RegistryError:
                self._earlier = None
                raise
            if state is None:
                return
            with self._lock:
                aspired = self._by_role(state[0])
                for version in aspired.values():
                    self._forget_older_refusal(version)
                self._shared.aspired = aspired
                self._shared.reason = state[1]
            self._execute_actions()

    def _forget_older_refusal(self, aspired: Resolution) -> None:
        """Allow a version to be tried again if it was refused under an older revision. The caller must hold the lock."""
        # A scorer that polls every revision tries the version again at each revision that names it. A scorer that skipped polls
        # must have the same result.
        refusal = self._shared.refused.get(aspired.digest)
        if refusal is not None and refusal.revision < aspired.revision:
            del self._shared.refused[aspired.digest]

    def _earlier_states(self) -> Iterator[tuple[Resolution, str]]:
        """Yield the states of the channel since the served one, newest first, each with the reason of its move."""
        tag = self._settings.model.tag
        known_good = None if self._shared.serving else self._tag.known_good()
        try:
            for move in channel.iter_completed(self._store, tag, self._before):
                if move.revision <= self._served_revision:
                    return
                if known_good is not None and known_good.revision >= move.revision:
                    if known_good.revision > move.revision:
                        yield known_good, KNOWN_GOOD
                    known_good = None
                resolution = Resolution(move.champion, move.to_version, move.revision, move.roles, move.history or "")
                if self._may_step_back_to(resolution):
                    yield resolution, move.reason
        except RegistryError as error:
            if known_good is None:
                raise
            log.warning("the history of %s cannot be read: %s", tag, error)
        if known_good is not None:
            yield known_good, KNOWN_GOOD

    @property
    def _served_revision(self) -> int:
        """The revision of the served versions; -1 if no version is served."""
        serving = self._shared.serving
        return serving[CHAMPION].resolution.revision if serving else -1

    def _may_step_back_to(self, resolution: Resolution) -> bool:
        """Return whether the policy allows an earlier state to be served. Raises RegistryError if the error is transient."""
        try:
            self._moves.check_earlier(self._store, self._settings.model.tag, resolution, datetime.now(UTC))
        except RegistryError as error:
            if error.transient:
                raise
            log.warning("revision %d of the channel is skipped: %s", resolution.revision, error)
            return False
        return True

    def _execute_actions(self) -> None:
        """Load and unload versions until the version policy's next action is neither a load nor an unload."""
        while not self._closing.is_set():
            with self._lock:
                action = version_policy.next_action(self._snapshot())
                if isinstance(action, version_policy.UnloadVersion):
                    unloaded = self._shared.ready.pop(action.digest)
            if isinstance(action, version_policy.UnloadVersion):
                log.info("unloading %s", unloaded.label)
                unloaded.loaded.model.close()
                self._cache.release(unloaded.digest)
            elif isinstance(action, version_policy.LoadVersion):
                self._load_version(action.digest)
            else:
                return

    def _load_version(self, digest: str) -> None:
        load = self._load
        settings = self._settings
        role, aspired = next((role, aspired) for role, aspired in self._shared.aspired.items() if aspired.digest == digest)
        try:
            if reason := self._crash_refusal(role, aspired):
                raise ModelRefused(reason)
            self._admission.check(self._store, digest, aspired.version, datetime.now(UTC))
            package = self._cache.fetch(self._store, digest, version=aspired.version)
            with self._guard.loading(aspired.identity):
                self._guard.attempt(package, aspired.identity, lambda: self._is_wanted(digest))
                servable = make(package, aspired, load, settings, role)
        except Superseded:
            log.info("the channel no longer names version %s; its trial load was stopped", aspired.version)
            self._cache.release(digest)
            self._poll_channel()
            return
        except (ModelRefused, RegistryError) as error:
            if isinstance(error, RegistryError) and error.transient:
                self._tag.resolve_on_next_poll()
                self._delay(aspired, error)
                raise
            self._cache.release(digest)
            refusal = VersionRefusal(aspired.version, str(error), aspired.revision)
            with self._lock:
                self._shared.refused[digest] = refusal
                self._shared.delayed.pop(digest, None)
            self._report(f"version {aspired.version}", refusal, error.hint if isinstance(error, RegistryError) else "")
            return
        except DependencyUnavailable as error:
            self._delay(aspired, error)
            raise
        with self._lock:
            self._shared.delayed.pop(digest, None)
            if load is not self._load:  # `reload` has closed this model
                return
            self._shared.ready[digest] = servable
        log.info("%s is ready (revision %d)", servable.label, aspired.revision)

    def _delay(self, aspired: Resolution, error: Exception) -> None:
        with self._lock:
            self._shared.delayed[aspired.digest] = VersionRefusal(aspired.version, str(error), aspired.revision)

    def _crash_refusal(self, role: str, aspired: Resolution) -> str | None:
        """Return why a version must not be loaded because of earlier crashes; None if it may be loaded."""
        # The version that this scorer served last may always be loaded: it was loaded here before, so the crashes must have
        # another cause.
        if role != CHAMPION and (reason := self._lethal(aspired.identity)):
            return reason
        known_good = self._tag.known_good()
        return None if known_good and known_good.digest == aspired.digest else self._guard.refusal(aspired.identity)

    def _is_wanted(self, digest: str) -> bool:
        """Return whether the version with this digest is still to be served. Called while a trial process loads the version."""
        # The channel is polled first if a poll is due.
        # If the registry is unavailable, the version counts as aspired.
        if self._closing.is_set():
            return False
        now = time.monotonic()
        if not self._wake.is_set() and now < self._poll_at:
            return True
        self._wake.clear()
        self._poll_at = now + self._settings.model.poll_seconds
        named = self._tag.named
        try:
            target = self._tag.poll()
        except RegistryError as error:
            self._outages.begin(MODEL_REGISTRY, error, optional=True)
            return True
        if target is None or target[0] == named:
            return True
        self._tag.resolve_on_next_poll()  # the next poll aspires to this target
        return digest in (resolution.digest for resolution in self._by_role(target[0]).values())

    def _snapshot(self) -> version_policy.Snapshot:
        shared = self._shared
        states = dict.fromkeys(shared.ready, version_policy.VersionState.READY)
        states |= dict.fromkeys(shared.refused, version_policy.VersionState.REFUSED)
        return version_policy.Snapshot(
            aspired={role: resolution.digest for role, resolution in shared.aspired.items()},
            aspired_revision=shared.aspired[CHAMPION].revision if shared.aspired else 0,
            serving={role: servable.digest for role, servable in shared.serving.items()},
            serving_revision=shared.serving[CHAMPION].resolution.revision if shared.serving else 0,
            states=states,
        )
