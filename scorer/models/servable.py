"""A model version in its role: a loaded model, and the encoder of its records."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from model_registry.channels.channel import Resolution
from model_registry.channels.roles import CANARY, CHAMPION, SHADOW, Role
from model_registry.package import Package
from scorer.models.loaded_model import LoadedModel
from scorer.models.traffic_split import TrafficSplit
from scorer.scores import formats as score_formats
from scorer.scores.record import RecordEncoder
from scorer.settings import Settings

LoadPackage = Callable[[Package], LoadedModel]
"""A function that loads the model of a package and prepares it. Raises ModelRefused, DependencyUnavailable."""


@dataclass(frozen=True, slots=True)
class Servable:
    """A version that answers events in one role.

    Attributes:
        loaded: the model.
        encoder: the encoder of its records.
        resolution: the channel's target for the role, under the revision that made it the aspired version.
        reason: the reason of the channel move.
    """

    loaded: LoadedModel
    encoder: RecordEncoder
    resolution: Resolution
    reason: str = ""

    def acting(self, resolution: Resolution, reason: str, role: str) -> "Servable":
        """Return the same version in a role, under the revision of this resolution."""
        encoder = self.encoder.acting(role=role, arm=role, revision=resolution.revision)
        return replace(self, encoder=encoder, resolution=resolution, reason=reason)

    def instead_of_canary(self, reason: str) -> "Servable":
        """Return this champion as the one that answers events of the canary's arm; `reason` states why."""
        revision = self.resolution.revision
        return replace(self, encoder=self.encoder.acting(role=CHAMPION, arm=CANARY, revision=revision, fallback=reason))

    def named(self, version: str, digest: str) -> "Servable":
        """Return this servable with records in the name of a version that is not loaded."""
        return replace(self, encoder=self.encoder.named(version, digest))

    def as_shadow(self, arm: str, reason: str | None = None) -> "Servable":
        """Return this version as the shadow of an arm; `reason` states why it cannot score."""
        revision = self.resolution.revision
        return replace(self, encoder=self.encoder.acting(role=SHADOW, arm=arm, revision=revision, fallback=reason))

    def reads_as(self, other: "Servable") -> bool:
        """Return whether both versions decode an event to the same tensors."""
        ours = self.loaded
        theirs = other.loaded
        return type(ours.decoder) is type(theirs.decoder) and ours.model.signature().inputs == theirs.model.signature().inputs

    @property
    def digest(self) -> str:
        """The manifest digest, which identifies the version."""
        return self.resolution.digest

    @property
    def label(self) -> str:
        """`name:version@digest`, for messages and dead letters."""
        origin = self.encoder.provenance
        return f"{origin['model']}:{origin['version']}@{self.digest}"


@dataclass(frozen=True, slots=True)
class CanaryArm:
    """The arm of the canary: its keys, and the version that answers them.

    Attributes:
        digest: the canary's manifest digest.
        percent: the percentage of keys that the canary answers.
        split: the assignment of keys to the canary.
        servable: the canary; None if this scorer refuses it.
        version: the canary's version.
        pairs: the percentage of keys that a shadow scores; 0 for the shadow's own setting.
        alike: whether the canary decodes an event to the same tensors as the champion.
    """

    digest: str
    percent: int
    split: TrafficSplit
    servable: Servable | None
    version: str = ""
    pairs: int = 0
    alike: bool = False

    @classmethod
    def of(cls, role: Role, servable: Servable | None, champion: Servable) -> "CanaryArm":
        """Create the arm of a role of the channel, compared with this champion; a shadow answers no key."""
        alike = servable is not None and servable.reads_as(champion)
        split = TrafficSplit.of(role.digest, role.weight)
        return cls(role.digest, role.weight, split, servable, role.version, role.pairs, alike)


def make(package: Package, resolution: Resolution, load: LoadPackage, settings: Settings, role: str = CHAMPION) -> Servable:
    """Load a package for this role. Raises the errors of `load` and of `formats.encoder`."""
    encoder = score_formats.encoder(  # before the model: it may send a request to a schema registry, once per process
        settings, model=package.name, version=package.version, digest=package.digest, role=role, region=settings.region
    )
    return Servable(load(package), encoder, resolution).acting(resolution, "", role)
