"""Follows the model's tag: polls the registry, makes the aspired version ready beside the serving one, flips between batches.

Two threads: one of its own does everything slow; the thread that scores calls `flip`, which only exchanges references.
The registry being down never stops scoring: the serving version goes on, and a start falls back on the last one known good.
"""

import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from model_registry.channels import roles
from model_registry.channels.channel import Resolution
from model_registry.channels.roles import CHAMPION, Role
from model_registry.errors import RegistryError
from model_registry.stores import Store
from model_registry.trust.gate import admission
from publisher.errors import Fatal
from publisher.process.outages import MODEL_REGISTRY, Away, Outages
from scorer.backends import ModelRefused
from scorer.servables import policy
from scorer.servables.servable import Canary, Load, Servable, make
from scorer.servables.source import open_cache, open_source
from scorer.servables.tag import FollowedTag
from scorer.settings import Settings

log = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0  # between tries to load a model again that is served
JITTER = 0.2  # polls of many scorers spread by themselves


@dataclass(slots=True)
class Refusal:
    """Why a version is not served here."""

    version: str
    reason: str


@dataclass(slots=True)
class _Shared:
    """What both threads see; every change holds the lock."""

    aspired: dict[str, Resolution] = field(default_factory=dict)  # by role
    reason: str = ""
    serving: dict[str, Servable] = field(default_factory=dict)  # by role
    canary: Canary | None = None  # of what is serving
    ready: dict[str, Servable] = field(default_factory=dict)
    refused: dict[str, Refusal] = field(default_factory=dict)
    moving: bool = False  # what is served has to be made anew


class VersionManager:
    """The versions of one scorer: the champion, and the `candidate` among the channel's roles, if there is one.
    `on_refused(refusal)` tells the metrics, `outages` hear of what does not answer. `lethal(identity)` says why a candidate is
    not loaded, if it is not."""

    def __init__(
        self,
        settings: Settings,
        load: Load,
        outages: Outages,
        *,
        on_refused: Callable[[Refusal], None] = lambda _: None,
        lethal: Callable[[str], str | None] = lambda _: None,
        candidate: Callable[[Sequence[Role]], Role | None] = roles.canary,
    ) -> None:
        self._settings = settings
        self._load = load
        self._outages = outages
        self._on_refused = on_refused
        self._lethal = lethal
        self._candidate = candidate
        self._store: Store = open_source(settings)
        self._cache = open_cache(settings.model)
        self._tag = FollowedTag(settings.model, self._store, self._cache)
        self._admission = admission(settings.model.policy, self._cache.root)
        self._shared = _Shared()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._poll_for_ever, name="model-versions", daemon=True)

    def start(self) -> None:
        """Make the aspired version ready and serve it, then follow the tag.

        Raises Fatal where there is none to serve; Away where that may change by itself: then call it again.
        """
        try:
            self._begin()
        except RegistryError as error:
            said = f"no model version to serve: {error}"
            if error.transient:
                raise Away(MODEL_REGISTRY, said, error.hint) from error
            raise Fatal(said, error.hint, exit_code=error.exit_code) from error
        self.flip()
        if not self._shared.serving:
            reasons = "; ".join(f"{r.version}: {r.reason}" for r in self._shared.refused.values())
            raise Fatal(f"no model version to serve: {reasons}", "push a version that passes, then promote it", exit_code=3)
        self._tag.note(self.champion.resolution, self.champion.label)
        self._thread.start()

    def _begin(self) -> None:
        """Make the aspired version ready, or the last one known good where the registry does not tell."""
        try:
            self._look()
        except RegistryError as error:
            if (known := self._tag.known_good()) is None:
                raise
            log.warning("the registry does not answer (%s); starting with the last version known good, %s", error, known)
            self._aspire(known, "last known good")
        self._work()

    @property
    def serving(self) -> Mapping[str, Servable]:
        """The versions of the next batch, by role."""
        return self._shared.serving

    @property
    def champion(self) -> Servable:
        """The version that answers the next batch."""
        return self._shared.serving[CHAMPION]

    @property
    def canary(self) -> Canary | None:
        """The candidate's arm of the next batch, if the channel has one."""
        return self._shared.canary

    @property
    def aspired_revision(self) -> int:
        """The channel's revision that was seen last."""
        aspired = self._shared.aspired
        return aspired[CHAMPION].revision if aspired else 0

    def refusals(self) -> list[Refusal]:
        """The versions refused so far that the tag still asked for when they were."""
        with self._lock:
            return list(self._shared.refused.values())

    def flip(self) -> bool:
        """Between two batches: serve the aspired versions if they are ready. Whether there was a flip."""
        shared = self._shared
        with self._lock:
            if not isinstance(policy.next_action(self._snapshot()), policy.Flip):
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
        """Exchange what is served; the caller holds the lock."""
        champion = serving[CHAMPION]
        role = self._candidate(champion.resolution.roles)
        self._shared.canary = None if role is None else Canary.of(role, serving.get(role.role), champion)
        self._shared.serving = serving

    def move(self, load: Load) -> None:
        """Load the versions that are served anew, by `load`, and every later one. What was open is closed already."""
        with self._lock:
            self._load = load
            self._shared.moving = True
            self._shared.ready.clear()
            self._wake.set()

    def _move(self) -> None:
        """Serve the same versions from models loaded anew. What it raises is told, and it is tried again."""
        for role, before in self._shared.serving.items():
            if (fresh := self._shared.ready.get(before.digest)) is None:
                package = self._cache.fetch(self._store, before.digest, version=before.resolution.version)
                fresh = replace(before, loaded=self._load(package))
            servable = replace(before, loaded=fresh.loaded)
            with self._lock:
                self._serve({**self._shared.serving, role: servable})
                self._shared.ready[before.digest] = servable
            log.info("%s is loaded into this process", servable.label)
        with self._lock:
            self._shared.moving = False

    def hurry(self) -> None:
        """Look at the registry now: the channel was said to have moved, or a partition has seen a newer revision."""
        self._tag.forget()
        self._wake.set()

    def close(self) -> None:
        """Stop following the tag."""
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
                self._look()
                self._work()
                self._outages.end(MODEL_REGISTRY)
            except RegistryError as error:
                self._outages.begin(MODEL_REGISTRY, error, goes_on=True)
            except Away as error:
                log.warning("the aspired version cannot be made ready yet, %s goes on: %s", self.champion.label, error)
            except Exception:
                log.exception("following the model's tag failed; %s goes on", self.champion.label)

    def _look(self) -> None:
        """Aspire to what the tag names, if that may have changed."""
        if found := self._tag.look():
            self._aspire(*found)

    def _aspire(self, resolution: Resolution, reason: str) -> None:
        with self._lock:
            aspired = {CHAMPION: resolution}
            if role := self._candidate(resolution.roles):
                aspired[role.role] = replace(resolution, digest=role.digest, version=role.version)
            if aspired != self._shared.aspired:
                for one in aspired.values():
                    self._shared.refused.pop(one.digest, None)
            self._shared.aspired, self._shared.reason = aspired, reason

    def _work(self) -> None:
        """Do what the policy asks for, until it asks for what only the scoring thread may do."""
        while True:
            with self._lock:
                action = policy.next_action(self._snapshot())
                if isinstance(action, policy.Unload):
                    unloaded = self._shared.ready.pop(action.digest)
            if isinstance(action, policy.Unload):
                log.info("freeing %s", unloaded.label)
                unloaded.loaded.model.close()
                self._cache.release(unloaded.digest)
            elif isinstance(action, policy.Load):
                self._load_version(action.digest)
            else:
                return

    def _load_version(self, digest: str) -> None:
        load, settings = self._load, self._settings
        role, aspired = next((role, aspired) for role, aspired in self._shared.aspired.items() if aspired.digest == digest)
        try:
            if role != CHAMPION and (why := self._lethal(aspired.identity)):
                raise ModelRefused(why)
            self._admission.check(self._store, digest, aspired.version, datetime.now(UTC))
            package = self._cache.fetch(self._store, digest, version=aspired.version)
            servable = make(package, aspired, load, settings, role)
        except (ModelRefused, RegistryError) as error:
            if isinstance(error, RegistryError) and error.transient:
                self._tag.forget()
                raise
            self._cache.release(digest)
            refusal = Refusal(aspired.version, str(error))
            hint = f" (hint: {error.hint})" if isinstance(error, RegistryError) and error.hint else ""
            log.error("version %s is refused: %s%s", aspired.version, error, hint)  # noqa: TRY400 - a finding, not a bug
            with self._lock:
                self._shared.refused[digest] = refusal
            self._on_refused(refusal)
            return
        with self._lock:
            if load is not self._load:  # its model was closed meanwhile
                return
            self._shared.ready[digest] = servable
        log.info("%s is ready (revision %d)", servable.label, aspired.revision)

    def _snapshot(self) -> policy.Snapshot:
        shared = self._shared
        known = dict.fromkeys(shared.ready, policy.State.READY)
        known |= dict.fromkeys(shared.refused, policy.State.REFUSED)
        return policy.Snapshot(
            aspired={role: resolution.digest for role, resolution in shared.aspired.items()},
            aspired_revision=self.aspired_revision,
            serving={role: servable.digest for role, servable in shared.serving.items()},
            serving_revision=shared.serving[CHAMPION].resolution.revision if shared.serving else 0,
            known=known,
        )
