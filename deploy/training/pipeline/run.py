"""One run: its settings, its folder and its journal, and what its steps share. After a kill what its steps share is computed
again from the folder: the same rows, the same model, the same scores."""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from model_registry import atomic_files
from model_registry.channels.channel import Resolution
from model_registry.oci import digests, reference
from model_registry.package import Package
from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from model_registry.signing.keys import PrivateKey, read_password, read_private
from model_registry.signing.policy import read
from model_registry.signing.signatures import TrustedKey
from model_registry.stores.base import Store
from publisher.errors import USAGE, Fatal
from scorer.decoding import decoder_factory
from scorer.decoding.types import Unsuited
from scorer.models.registry_access import open_source, pull_version
from scorer.settings import Settings
from training.pipeline.journal import Journal, written
from training.pipeline.step_results import Counted, Plan, Pushed, Rows
from training.publish.promote import standing
from training.recipes import Recipe, named
from training.settings import Training
from training.snapshot import join_labels
from training.snapshot.files import Frozen
from training.snapshot.join_labels import Joined
from training.snapshot.rows import Split
from training.snapshot.skip_counts import Told
from training.validation_gate.metrics import Scored

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""Told what is under way, how much of it is done, and of how much."""
SCORERS = ("name", "region", "input", "labels")
PRIVATE: dict[str, Any] = {
    **dict.fromkeys(("folder", "workers", "gpus", "scorer", "signature"), True),
    "snapshot": {"keep"},
    "publish": {"key_file", "password_file", "rollout"},
}
"""Settings that leave no trace in the model, or are files of one machine."""


class Run:
    """Raises Fatal wherever a step is asked for that is not done."""

    def __init__(self, training: Training, settings: Settings, folder: Path, progress: Progress, *, anew: bool = False) -> None:
        """`anew`: also where no label has come since the last run."""
        self.anew = anew
        self.training = training
        self.settings = settings
        self.folder = folder
        self.journal = Journal(folder / "steps")
        self.progress = progress
        self.scores: dict[str, tuple[Scored, Told]] = {}

    def result(self, step: str, of: type[T]) -> T:
        """What came of a step that is done."""
        found = self.journal.result(step, of)
        if found is None:
            raise Fatal(f"the step {step} of {self.folder} is not done", "run it to its end first: run")
        return found

    @property
    def records(self) -> Path:
        """Where the snapshot's records are."""
        return self.folder / "records"

    @property
    def package(self) -> Path:
        """Where the version's package is made."""
        return self.folder / "package"

    @cached_property
    def plan(self) -> Plan:
        return self.result("plan", Plan)

    @cached_property
    def signature(self) -> Signature:
        return parse_signature(self.plan.signature)

    @cached_property
    def frozen(self) -> Frozen:
        return self.result("freeze", Frozen)

    @property
    def frozen_at(self) -> datetime:
        """The moment of the freeze. What a run attests is dated by it: a run that goes on writes the same bytes."""
        return datetime.fromtimestamp(self.frozen.now_ms / 1_000, UTC)

    @cached_property
    def copied(self) -> Counted:
        return self.result("copy", Counted)

    @cached_property
    def rows(self) -> Rows:
        return self.result("join", Rows)

    @cached_property
    def joined(self) -> Joined:
        """The labelled rows, read from the records. Raises Fatal (3) where they are not as they were copied."""
        try:
            decoder = decoder_factory.decoder(self.settings, self.signature)
        except Unsuited as error:
            told = f"input.format {self.settings.input.format} does not suit the signature: {error}"
            raise Fatal(told, "name the signature that does: signature", USAGE) from None
        others = [] if self.plan.champion is None else [parse_signature(self.plan.champion)]
        return join_labels.join(self.records, self.frozen, self.settings, self.training, self.signature, decoder, others)

    @cached_property
    def split(self) -> Split:
        return join_labels.split(self.joined, self.training)

    @property
    def learned_until_ms(self) -> int:
        """Events up to this time (Unix ms) are trained on or chosen by; the later ones are the hold-out."""
        return self.joined.mature_ms - self.training.snapshot.hold_out

    @cached_property
    def recipe(self) -> Recipe:
        return named(self.training.recipe, self.training.gpus)

    @cached_property
    def store(self) -> Store:
        return open_source(self.settings)

    @property
    def channel(self) -> str:
        return self.training.publish.channel or self.settings.model.tag

    @cached_property
    def key(self) -> PrivateKey:
        """The key that attests and signs. Raises Fatal (2) where none is named, RegistryError where it cannot be read."""
        publish = self.training.publish
        if publish.key_file is None:
            hint = "make one: model-registry keygen training; then publish: {key_file: training.key}"
            raise Fatal("publish.key_file is not set: a version is attested and signed with a key", hint, USAGE)
        return read_private(publish.key_file, read_password(publish.password_file))

    @cached_property
    def trusted(self) -> list[TrustedKey]:
        """The keys of the scorer's policy, and the run's own. Raises RegistryError, Fatal (2)."""
        policy = self.settings.model.policy
        return [*(read(policy).keys if policy else ()), TrustedKey("publish.key_file", self.key.public(), None)]

    def serves(self) -> Resolution | None:
        """What the channel names now; None where there is no such channel, or no repository, yet. Raises RegistryError."""
        source = reference.parse(self.settings.model.source)
        if source.kind == "oci" and not Path(source.repository, "index.json").exists():
            return None
        return standing(self.store, self.channel)

    def version(self, digest: str) -> Package:
        """A version of the repository, admitted by the scorer's policy. Raises RegistryError."""
        model = self.settings.model.model_copy(update={"tag": digest})
        return pull_version(self.settings.model_copy(update={"model": model}))[0]

    def draw(self, name: str, picture: str) -> None:
        """Keep a picture, the text of an SVG, in the run's folder; nothing where there is nothing to see. Raises Fatal (3)."""
        path = self.folder / "pictures" / f"{name}.svg"
        if picture:
            with written(path):
                path.parent.mkdir(exist_ok=True)
                atomic_files.replace(path, [picture.encode()])

    @property
    def pushed(self) -> Pushed:
        return self.result("push", Pushed)

    @property
    def identity(self) -> str:
        """12 hexadecimal digits: what is frozen, its bytes, the configuration with its seed, the signature, the environment."""
        parts = (self.frozen, self.copied.digest, self.plan.config, self.plan.signature, self.plan.environment)
        return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:12]


def config(training: Training, settings: Settings) -> dict[str, Any]:
    """Every setting that leaves a trace in the model or in its judgement: no secret, and no path of a machine. Raises
    RegistryError."""
    own = training.model_dump(mode="json", exclude=PRIVATE)
    scorers = settings.model_dump(mode="json", include=set(SCORERS), exclude={"input": {"schema_file"}})
    return {"training": own, "scorer": {**scorers, "schema": schema(settings)}}


def schema(settings: Settings) -> str | None:
    """The digest of the file that the schema of the events is in. Raises RegistryError where that cannot be read."""
    path = settings.input.schema_file
    return digests.from_bytes(atomic_files.read_named("schema", path)) if path else None
