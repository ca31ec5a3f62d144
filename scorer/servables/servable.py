"""A version in its role: a loaded model, and how its answers are encoded."""

from collections.abc import Callable
from dataclasses import dataclass

from model_registry.channels.channel import Resolution
from model_registry.channels.roles import CHAMPION
from model_registry.package.folder import Package
from scorer.scores import formats as score_formats
from scorer.scores.record import RecordEncoder
from scorer.servables.loaded import LoadedModel
from scorer.settings import Settings

Load = Callable[[Package], LoadedModel]
"""Loads a package's model and makes it ready. Raises ModelRefused and Away."""


@dataclass(frozen=True, slots=True)
class Servable:
    """What answers events in one role. `resolution` is what the channel names for the role, under the revision that made it the
    aspired version; `reason` is why the channel was moved there."""

    loaded: LoadedModel
    encoder: RecordEncoder
    resolution: Resolution
    reason: str = ""

    @property
    def digest(self) -> str:
        """The manifest digest: the identity of the version."""
        return self.resolution.digest

    @property
    def label(self) -> str:
        """`name:version@digest`, for people and for dead letters."""
        origin = self.encoder.provenance
        return f"{origin['model']}:{origin['version']}@{self.digest}"


def make(package: Package, resolution: Resolution, load: Load, settings: Settings, role: str = CHAMPION) -> Servable:
    """A package, ready to answer in this role. Raises as `load` does, Fatal and Away as the encoder of `output.format`."""
    encoder = score_formats.encoder(  # before the model: it may have to ask a schema registry, once in a process
        settings, model=package.name, version=package.version, digest=package.digest, role=role, region=settings.region
    )
    return Servable(load(package), encoder, resolution)
