"""Model versions that are ready to serve: each in one role of the channel, with the encoder of its score records."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from model_registry.channels.channel import Resolution
from model_registry.channels.roles import CANARY, CHAMPION, SHADOW, Role
from model_registry.package import Package
from scorer.features.record_encoder import FeatureEncoder
from scorer.features.version_encoder import create_feature_encoder
from scorer.models.loaded_model import LoadedModel
from scorer.models.traffic_split import TrafficSplit
from scorer.scores import formats as score_formats
from scorer.scores.record import RecordEncoder
from scorer.settings import Settings

LoadPackage = Callable[[Package], LoadedModel]
"""A function that loads the model of a package and prepares it. Raises ModelRefused, DependencyUnavailable."""


@dataclass(frozen=True, slots=True)
class Servable:
    """A loaded version in one role of the channel, such as champion or canary.

    Attributes:
        loaded: the model.
        encoder: the encoder of the version's score records.
        resolution: the version, and the revision of the channel that names it.
        reason: the reason of the channel move that created this revision.
        features: the encoder of the version's feature records; None without a feature log.
    """

    loaded: LoadedModel
    encoder: RecordEncoder
    resolution: Resolution
    reason: str = ""
    features: FeatureEncoder | None = None

    def in_role(self, resolution: Resolution, reason: str, role: str) -> "Servable":
        """Return a copy with this role. The copy's score records contain the role, and the revision of `resolution`."""
        encoder = self.encoder.acting(role=role, arm=role, revision=resolution.revision)
        return replace(self, encoder=encoder, resolution=resolution, reason=reason)

    def in_place_of_canary(self, reason: str) -> "Servable":
        """Return a copy of this champion that answers the canary's events.

        The copy's records contain `reason`, which states why the canary does not answer.
        """
        revision = self.resolution.revision
        return replace(self, encoder=self.encoder.acting(role=CHAMPION, arm=CANARY, revision=revision, fallback=reason))

    def named(self, version: str, digest: str) -> "Servable":
        """Return a copy whose score records name another version, which is not loaded, in place of this version."""
        return replace(self, encoder=self.encoder.named(version, digest))

    def as_shadow(self, arm: str, reason: str | None = None) -> "Servable":
        """Return a copy for a shadow that scores the events of the role `arm` (champion or canary).

        `reason` states why the copy cannot score the events; None if it can.
        """
        revision = self.resolution.revision
        return replace(self, encoder=self.encoder.acting(role=SHADOW, arm=arm, revision=revision, fallback=reason))

    def decodes_like(self, other: "Servable") -> bool:
        """Return whether both versions decode each event to the same tensors."""
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
    """The candidate version of the channel, and the share of the keys that it answers.

    Attributes:
        digest: the candidate's manifest digest.
        percent: the percentage of keys that the candidate answers; 0 for a shadow.
        split: the selection of the keys that the candidate answers.
        servable: the loaded candidate; None if this scorer does not serve it.
        version: the candidate's tag.
        pairs: the percentage of keys whose events a shadow also scores; 0 if the shadow's settings determine the percentage.
        alike: whether candidate and champion decode an event to the same tensors.
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
        """Create the arm of the candidate that the channel names in this role.

        Args:
            role: the role of the channel, whose weight is the percentage of keys (0 for a shadow).
            servable: the loaded candidate; None if this scorer does not serve it.
            champion: the served champion.
        """
        alike = servable is not None and servable.decodes_like(champion)
        split = TrafficSplit.of(role.digest, role.weight)
        return cls(role.digest, role.weight, split, servable, role.version, role.pairs, alike)


def make(package: Package, resolution: Resolution, load: LoadPackage, settings: Settings, role: str = CHAMPION) -> Servable:
    """Load a package and create its servable in the given role.

    Raises the errors of `load`, of `formats.encoder` and of `create_feature_encoder`.
    """
    encoder = score_formats.encoder(  # before the model: it may send a request to a schema registry, once per process
        settings, model=package.name, version=package.version, digest=package.digest, role=role, region=settings.region
    )
    features = None if package.signature is None else create_feature_encoder(settings, package.signature)
    loaded = load(package)
    if package.signature is None:  # the signature is derived from the model
        try:
            features = create_feature_encoder(settings, loaded.model.signature())
        except BaseException:
            loaded.model.close()
            raise
    return Servable(loaded, encoder, resolution, features=features).in_role(resolution, "", role)
