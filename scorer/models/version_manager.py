"""Follow the channel: poll the registry, load the aspired version beside the serving one, and swap between batches.

A separate thread does all slow work; the scoring thread calls `flip`, which only exchanges references. An unavailable registry
never stops scoring: the serving version continues, and a start falls back to the last good one.

If the channel names a refused champion, or was moved in a way that the policy does not accept, a scorer serves the newest good
revision of the channel's history, under that revision. A running scorer usually serves it already; a starting one loads it. A
revision is good if its champion is good: a refused candidate is left out, and the champion answers its share (see
`load_decision.py`). All scorers therefore write the same records, and no partition returns to an older revision when its owner
changes.
"""

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
from model_registry.errors import NotFound, RegistryError
from model_registry.oci import tags
from model_registry.signing.admission import admission
from model_registry.stores.base import Store
from publisher.errors import USAGE, Fatal
from publisher.runtime.dependencies import MODEL, MODEL_REGISTRY, DependencyUnavailable, Outages
from scorer.backends.base import ModelRefused
from scorer.models import load_decision
from scorer.models.channel_follower import ChannelFollower
from scorer.models.load_guard import LoadGuard, Superseded, Unguarded
from scorer.models.registry_access import open_cache, open_source
from scorer.models.servable import CanaryArm, LoadPackage, Servable, make
from scorer.settings import Settings

log = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0  # between tries to load a model again that is served
KNOWN_GOOD = "last known good"
JITTER = 0.2  # polls of many scorers spread by themselves


@dataclass(slots=True)
class VersionRefusal:
    """The refusal of a version: its reason, and the `revision` of the channel that named it."""

    version: str
    reason: str
    revision: int = field(default=0, compare=False)


@dataclass(slots=True)
class _Shared:
    """The state that both threads see; every change holds the lock.

    `named` is the last seen state of the channel, `fault` the reason if that state itself is refused, and `accepted_revision`
    the highest accepted revision. `aspired` is the state to serve: `named`, or an earlier state of the channel if `named` is
    refused; empty if no state can be served.
    """

    named: Resolution | None = None
    fault: VersionRefusal | None = None
    accepted_revision: int = 0
    aspired: dict[str, Resolution] = field(default_factory=dict)  # by role
    reason: str = ""
    serving: dict[str, Servable] = field(default_factory=dict)  # by role
    canary: CanaryArm | None = None  # of what is serving
    ready: dict[str, Servable] = field(default_factory=dict)
    refused: dict[str, VersionRefusal] = field(default_factory=dict)
    moving: bool = False  # what is served has to be made anew


class VersionManager:
    """The versions of one scorer: the champion, and the `candidate` among the channel's roles, if there is one.

    `on_refused(refusal)` updates the metrics, `outages` records unavailable dependencies. `lethal(identity)` returns why a
    candidate is not loaded. `guard` tries each version before it is loaded here.
    """

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
        self._poll_at = 0.0  # when the channel is polled again while a version is tried
        self._store: Store = open_source(settings)
        self._cache = open_cache(settings.model)
        self._tag = ChannelFollower(settings.model, self._store, self._cache)
        self._read_policy()
        self._shared = _Shared()
        self._earlier: Iterator[tuple[Resolution, str]] | None = None  # states of the channel that were not tried yet
        self._before: int | None = None  # they are older than this revision
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._poll_for_ever, name="model-versions", daemon=True)

    def _read_policy(self) -> None:
        policy_file, folder = self._settings.model.policy, self._cache.root
        self._admission, self._moves = admission(policy_file, folder), move_admission(policy_file, folder)

    def start(self) -> None:
        """Load and serve the aspired version, else the last good one of the channel's history; then follow the channel.

        Raises:
            DependencyUnavailable: No version can be served until something changes; call it again.
            Fatal: The configuration must be corrected, or the channel does not exist.
        """
        try:
            self._begin()
        except RegistryError as error:
            said = f"no model version to serve: {error}"
            if error.transient:
                raise DependencyUnavailable(MODEL_REGISTRY, said, error.hint) from error
            raise Fatal(said, error.hint, exit_code=error.exit_code) from error
        self.flip()
        if not self._shared.serving:
            reasons = "; ".join(f"{refusal.version}: {refusal.reason}" for refusal in self.refusals())
            raise DependencyUnavailable(MODEL, f"no model version to serve: {reasons}", "promote a version that passes")
        champion = self.champion
        if self.refuses_channel:
            log.warning(
                "the channel names what is refused; serving %s of revision %d", champion.label, champion.resolution.revision
            )
        self._tag.note(champion.resolution, champion.label)
        self._thread.start()

    def _begin(self) -> None:
        """Load the channel's target, or an earlier one if it is refused or the registry does not answer."""
        failed: RegistryError | None = None
        try:
            self._look()
        except RegistryError as error:
            failed = error
            if error.exit_code == USAGE:
                raise
            if error.transient:
                if (known := self._tag.known_good()) is None:
                    raise
                log.warning("the registry does not answer (%s); starting with the last version known good, %s", error, known)
                self._aspire(known, KNOWN_GOOD)
        self._work()
        self._step_back()
        if isinstance(failed, NotFound) and not self._shared.aspired and not self._has_history():
            raise failed

    def _has_history(self) -> bool:
        return bool(tags.revisions(self._store.tags(), self._settings.model.tag))

    @property
    def serving(self) -> Mapping[str, Servable]:
        """The versions of the next batch, by role."""
        return self._shared.serving

    @property
    def champion(self) -> Servable:
        """The champion of the next batch."""
        return self._shared.serving[CHAMPION]

    @property
    def canary(self) -> CanaryArm | None:
        """The candidate's arm of the next batch, if the channel has one."""
        return self._shared.canary

    @property
    def aspired_revision(self) -> int:
        """The channel's last seen revision, whether it is served, refused or being loaded."""
        named = self._shared.named
        return named.revision if named else 0

    @property
    def trusted_revision(self) -> float:
        """The highest acceptable revision: the highest seen signed one if the policy requires signed moves, else any."""
        return self._shared.accepted_revision if self._moves.signed else math.inf

    @property
    def refuses_channel(self) -> bool:
        """Whether the channel's target or its move is refused here."""
        with self._lock:
            named = self._shared.named
            wanted = self._by_role(named).values() if named else ()
            return self._shared.fault is not None or any(one.digest in self._shared.refused for one in wanted)

    def refusals(self) -> list[VersionRefusal]:
        """Return the refused versions that the channel still named then, and the refused state of the channel."""
        with self._lock:
            return [*self._shared.refused.values(), *([self._shared.fault] if self._shared.fault else [])]

    def flip(self) -> bool:
        """Serve the aspired versions if they are ready; return whether they changed. Called between two batches."""
        shared = self._shared
        with self._lock:
            if not isinstance(load_decision.next_action(self._snapshot()), load_decision.Flip):
                return False
            serving = {}
            for role, aspired in shared.aspired.items():
                if aspired.digest in shared.ready:
                    servable = shared.ready.pop(aspired.digest).acting(aspired, shared.reason, role)
                    serving[role] = shared.ready[aspired.digest] = servable
            self._serve(serving)
            self._wake.set()
            return True

    def _serve(self, serving: dict[str, Servable]) -> None:
        """Exchange the served versions; the caller holds the lock."""
        champion = serving[CHAMPION]
        role = self._candidate(champion.resolution.roles)
        self._shared.canary = None if role is None else CanaryArm.of(role, serving.get(role.role), champion)
        self._shared.serving = serving

    def move(self, load: LoadPackage) -> None:
        """Load the served versions again with `load`, and every later one. The previous models are closed already."""
        with self._lock:
            self._load = load
            self._shared.moving = True
            self._shared.ready.clear()
            self._wake.set()

    def _move(self) -> None:
        """Serve the same versions from newly loaded models. Errors are logged and the load is retried."""
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

    def hurry(self) -> None:
        """Poll the registry now: the channel was reported to have moved, or a partition has a newer revision."""
        self._tag.forget()
        self._wake.set()

    def close(self) -> None:
        """Stop following the channel."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _poll_for_ever(self) -> None:
        while not self._closing.is_set():
            poll = AGAIN_SECONDS if self._shared.moving else self._settings.model.poll_seconds
            self._wake.wait(poll * random.uniform(1 - JITTER, 1.0))
            self._wake.clear()
            self._tag.note(self.champion.resolution, self.champion.label)
            if self._closing.is_set():
                return
            try:
                if self._shared.moving:
                    self._move()
                self._follow()
                self._outages.end(MODEL_REGISTRY)
            except RegistryError as error:
                self._outages.begin(MODEL_REGISTRY, error, optional=True)
            except DependencyUnavailable as error:
                log.warning("the aspired version cannot be made ready yet, %s goes on: %s", self.champion.label, error)
            except Exception:
                log.exception("following the model's tag failed; %s goes on", self.champion.label)

    def _follow(self) -> None:
        """Load the channel's target, or an earlier state if that is refused.

        Raises RegistryError; for a channel without a target after an earlier state was searched.
        """
        failed: RegistryError | None = None
        try:
            self._look()
        except RegistryError as error:
            if error.transient:
                raise
            failed = error
        self._work()
        self._step_back()
        if failed is not None:
            raise failed

    def _look(self) -> None:
        """Aspire to the target of the channel, if it may have changed and is accepted.

        Raises:
            RegistryError: The channel names no version, or the registry does not answer.
        """
        try:
            if (found := self._tag.look()) is None:
                return
            resolution, reason = found
            if not self._shared.serving:  # all was refused: a policy or a signature may have been corrected since
                self._read_policy()
                self._forget_refusals()
        except RegistryError as error:
            missing = isinstance(error, NotFound) and self._shared.serving  # some registries replace a tag in two steps
            if not error.transient and not missing:
                self._tag.forget()
                self._reject(self._shared.named, None, VersionRefusal(self._settings.model.tag, str(error)), error.hint)
            raise
        try:
            self._moves.check(self._store, self._settings.model.tag, resolution, datetime.now(UTC))
        except RegistryError as error:
            if error.transient:
                self._tag.forget()
                raise
            self._reject(resolution, resolution.revision, VersionRefusal(resolution.version, str(error)), error.hint)
            return
        if self._shared.named != resolution or self._shared.fault or not self._shared.aspired:
            self._aspire(resolution, reason)

    def _aspire(self, resolution: Resolution, reason: str) -> None:
        """Aspire to the channel's target."""
        with self._lock:
            aspired = self._by_role(resolution)
            for one in aspired.values():
                self._shared.refused.pop(one.digest, None)
            self._shared.named, self._shared.fault = resolution, None
            self._shared.accepted_revision = max(self._shared.accepted_revision, resolution.revision)
            self._shared.aspired, self._shared.reason = aspired, reason
        self._earlier, self._before = None, resolution.revision

    def _reject(self, named: Resolution | None, before: int | None, refusal: VersionRefusal, hint: str) -> None:
        """Record a state of the channel that is not accepted. States before this revision may be served instead."""
        with self._lock:
            if self._shared.fault == refusal:
                return
            self._shared.named, self._shared.fault, self._shared.aspired = named, refusal, {}
        self._earlier, self._before = None, before
        self._report("the state of the channel", refusal, hint)

    def _report(self, what: str, refusal: VersionRefusal, hint: str) -> None:
        log.error("%s is refused: %s%s", what, refusal.reason, f" (hint: {hint})" if hint else "")
        self._on_refused(refusal)

    def _forget_refusals(self) -> None:
        with self._lock:
            self._shared.refused.clear()
            self._shared.fault, self._shared.aspired = None, {}
        self._earlier = None

    def _by_role(self, resolution: Resolution) -> dict[str, Resolution]:
        by_role = {CHAMPION: resolution}
        if role := self._candidate(resolution.roles):
            by_role[role.role] = replace(resolution, digest=role.digest, version=role.version)
        return by_role

    def _step_back(self) -> None:
        """Aspire to earlier states of the channel, newest first, while the aspired state is refused."""
        while True:
            with self._lock:
                if not load_decision.is_refused(self._snapshot()):
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
                for one in aspired.values():
                    self._forget_older_refusal(one)
                self._shared.aspired, self._shared.reason = aspired, state[1]
            self._work()

    def _forget_older_refusal(self, aspired: Resolution) -> None:
        """Try a version again that was refused before this revision promoted it, like a scorer that skipped no poll.

        The caller holds the lock.
        """
        refusal = self._shared.refused.get(aspired.digest)
        if refusal is not None and refusal.revision < aspired.revision:
            del self._shared.refused[aspired.digest]

    def _earlier_states(self) -> Iterator[tuple[Resolution, str]]:
        """Yield the earlier states of the channel, newest first, that are newer than the served one, with their reasons.

        If nothing is served, the last good one is among them.
        """
        tag = self._settings.model.tag
        known = None if self._shared.serving else self._tag.known_good()
        try:
            for move in channel.iter_completed(self._store, tag, self._before):
                if move.revision <= self._served_revision:
                    return
                if known is not None and known.revision >= move.revision:
                    if known.revision > move.revision:
                        yield known, KNOWN_GOOD
                    known = None
                resolution = Resolution(move.champion, move.to_version, move.revision, move.roles)
                if self._may_step_back_to(resolution):
                    yield resolution, move.reason
        except RegistryError as error:
            if known is None:
                raise
            log.warning("the history of %s cannot be read: %s", tag, error)
        if known is not None:
            yield known, KNOWN_GOOD

    @property
    def _served_revision(self) -> int:
        """Return the revision that is served now; -1 if nothing is served."""
        serving = self._shared.serving
        return serving[CHAMPION].resolution.revision if serving else -1

    def _may_step_back_to(self, resolution: Resolution) -> bool:
        """Return whether the policy accepts the move to an earlier state. Raises RegistryError if that is unknown."""
        try:
            self._moves.check_earlier(self._store, self._settings.model.tag, resolution, datetime.now(UTC))
        except RegistryError as error:
            if error.transient:
                raise
            log.warning("revision %d of the channel is left out: %s", resolution.revision, error)
            return False
        return True

    def _work(self) -> None:
        """Execute the decided actions, until only the scoring thread can continue."""
        while not self._closing.is_set():
            with self._lock:
                action = load_decision.next_action(self._snapshot())
                if isinstance(action, load_decision.UnloadVersion):
                    unloaded = self._shared.ready.pop(action.digest)
            if isinstance(action, load_decision.UnloadVersion):
                log.info("freeing %s", unloaded.label)
                unloaded.loaded.model.close()
                self._cache.release(unloaded.digest)
            elif isinstance(action, load_decision.LoadVersion):
                self._load_version(action.digest)
            else:
                return

    def _load_version(self, digest: str) -> None:
        load, settings = self._load, self._settings
        role, aspired = next((role, aspired) for role, aspired in self._shared.aspired.items() if aspired.digest == digest)
        try:
            if why := self._deadly(role, aspired):
                raise ModelRefused(why)
            self._admission.check(self._store, digest, aspired.version, datetime.now(UTC))
            package = self._cache.fetch(self._store, digest, version=aspired.version)
            with self._guard.loading(aspired.identity):
                self._guard.attempt(package, aspired.identity, lambda: self._is_wanted(digest))
                servable = make(package, aspired, load, settings, role)
        except Superseded:
            log.info("version %s is no longer wanted; its trial is ended", aspired.version)
            self._cache.release(digest)
            self._look()
            return
        except (ModelRefused, RegistryError) as error:
            if isinstance(error, RegistryError) and error.transient:
                self._tag.forget()
                raise
            self._cache.release(digest)
            refusal = VersionRefusal(aspired.version, str(error), aspired.revision)
            with self._lock:
                self._shared.refused[digest] = refusal
            self._report(f"version {aspired.version}", refusal, error.hint if isinstance(error, RegistryError) else "")
            return
        with self._lock:
            if load is not self._load:  # its model was closed meanwhile
                return
            self._shared.ready[digest] = servable
        log.info("%s is ready (revision %d)", servable.label, aspired.revision)

    def _deadly(self, role: str, aspired: Resolution) -> str | None:
        """Return why a version is not loaded after deaths.

        The version that was served last is always loaded: it was loaded here before, so another cause ended this process.
        """
        if role != CHAMPION and (why := self._lethal(aspired.identity)):
            return why
        known = self._tag.known_good()
        return None if known and known.digest == aspired.digest else self._guard.refusal(aspired.identity)

    def _is_wanted(self, digest: str) -> bool:
        """Return whether the version in its trial is still to be served; poll the channel meanwhile."""
        if self._closing.is_set():
            return False
        now = time.monotonic()
        if not self._wake.is_set() and now < self._poll_at:
            return True
        self._wake.clear()
        self._poll_at = now + self._settings.model.poll_seconds
        named = self._tag.named
        try:
            found = self._tag.look()
        except RegistryError as error:
            self._outages.begin(MODEL_REGISTRY, error, optional=True)
            return True
        if found is None or found[0] == named:
            return True
        self._tag.forget()  # what was found here is aspired to at the next look
        return digest in (one.digest for one in self._by_role(found[0]).values())

    def _snapshot(self) -> load_decision.Snapshot:
        shared = self._shared
        known = dict.fromkeys(shared.ready, load_decision.VersionState.READY)
        known |= dict.fromkeys(shared.refused, load_decision.VersionState.REFUSED)
        return load_decision.Snapshot(
            aspired={role: resolution.digest for role, resolution in shared.aspired.items()},
            aspired_revision=shared.aspired[CHAMPION].revision if shared.aspired else 0,
            serving={role: servable.digest for role, servable in shared.serving.items()},
            serving_revision=shared.serving[CHAMPION].resolution.revision if shared.serving else 0,
            known=known,
        )
