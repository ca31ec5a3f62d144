"""A version in its role: a loaded model, and how its answers are encoded."""

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
"""Loads a package's model and makes it ready. Raises ModelRefused and Away."""


@dataclass(frozen=True, slots=True)
class Servable:
    """What answers events in one role. `resolution` is what the channel names for the role, under the revision that made it the
    aspired version; `reason` is why the channel was moved there."""

    loaded: LoadedModel
    encoder: RecordEncoder
    resolution: Resolution
    reason: str = ""

    def acting(self, resolution: Resolution, reason: str, role: str) -> "Servable":
        """The same version in a role, under the revision of this resolution."""
        encoder = self.encoder.acting(role=role, arm=role, revision=resolution.revision)
        return replace(self, encoder=encoder, resolution=resolution, reason=reason)

    def instead_of_canary(self, why: str) -> "Servable":
        """The same champion where it answers events of the canary's arm."""
        revision = self.resolution.revision
        return replace(self, encoder=self.encoder.acting(role=CHAMPION, arm=CANARY, revision=revision, fallback=why))

    def named(self, version: str, digest: str) -> "Servable":
        """The same for records in the name of a version that is not here."""
        return replace(self, encoder=self.encoder.named(version, digest))

    def as_shadow(self, arm: str, why: str | None = None) -> "Servable":
        """The same version where it scores events of this arm unseen; `why` it cannot, if so."""
        revision = self.resolution.revision
        return replace(self, encoder=self.encoder.acting(role=SHADOW, arm=arm, revision=revision, fallback=why))

    def reads_as(self, other: "Servable") -> bool:
        """Whether both versions make the same tensors of an event."""
        ours, theirs = self.loaded, other.loaded
        return type(ours.decoder) is type(theirs.decoder) and ours.model.signature().inputs == theirs.model.signature().inputs

    @property
    def digest(self) -> str:
        """The manifest digest: the identity of the version."""
        return self.resolution.digest

    @property
    def label(self) -> str:
        """`name:version@digest`, for people and for dead letters."""
        origin = self.encoder.provenance
        return f"{origin['model']}:{origin['version']}@{self.digest}"


@dataclass(frozen=True, slots=True)
class CanaryArm:
    """The canary's arm: its keys, and what answers them; None where that version is refused here. `pairs` is the percent of the
    keys that a shadow is to score, 0: as it has set it. `alike`: it makes the same tensors of an event as the champion."""

    digest: str
    percent: int
    split: TrafficSplit
    servable: Servable | None
    version: str = ""
    pairs: int = 0
    alike: bool = False

    @classmethod
    def of(cls, role: Role, servable: Servable | None, champion: Servable) -> "CanaryArm":
        """That of a role in a channel, beside this champion; a shadow's share of the answers is none."""
        alike = servable is not None and servable.reads_as(champion)
        split = TrafficSplit.of(role.digest, role.weight)
        return cls(role.digest, role.weight, split, servable, role.version, role.pairs, alike)


def make(package: Package, resolution: Resolution, load: LoadPackage, settings: Settings, role: str = CHAMPION) -> Servable:
    """A package, ready to answer in this role. Raises as `load` does, Fatal and Away as the encoder of `output.format`."""
    encoder = score_formats.encoder(  # before the model: it may have to ask a schema registry, once in a process
        settings, model=package.name, version=package.version, digest=package.digest, role=role, region=settings.region
    )
    return Servable(load(package), encoder, resolution).acting(resolution, "", role)
