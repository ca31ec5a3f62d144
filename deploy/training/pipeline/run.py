"""One run: its settings, folder and journal, and the data that its steps share.

If a process is killed, the next process reads the folder and computes the same rows, model and scores again.
"""

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
from scorer.decoding.types import Decoder, FormatMismatch
from scorer.features.log import create_reader
from scorer.features.read import FeatureLogDecoder
from scorer.models.registry_access import open_source, pull_version
from scorer.settings import Settings
from training.pipeline.journal import Journal, written
from training.pipeline.step_results import Counted, JoinResult, Pushed, RunPlan
from training.publish.promote import standing
from training.recipes import Recipe, named, own
from training.recipes.own import Own
from training.runs_topic.run_events import NoEvents, RunEvents
from training.search.search import CODE
from training.settings import TrainingSettings
from training.snapshot import join_labels
from training.snapshot.files import Frozen
from training.snapshot.join_labels import Joined
from training.snapshot.rows import Split
from training.snapshot.skip_counts import SkipCounts
from training.validation_gate.metrics import ModelAnswers

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""Reports the current activity, the completed amount of work, and the total amount."""
SCORERS = ("name", "region", "input", "labels")
PRIVATE: dict[str, Any] = {
    **dict.fromkeys(("folder", "workers", "gpus", "scorer", "signature"), True),
    "snapshot": {"keep"},
    "publish": {"key_file", "password_file", "rollout"},
    "recipe": {"folder", "image", "deadline", "space", "launcher"},
}
"""Settings that a run does not record: some do not affect the model, the others name files of one machine."""


class Run:
    """One training run and the data that its steps share.

    A property raises Fatal if the step that provides its value is not complete.
    """

    def __init__(
        self,
        training: TrainingSettings,
        settings: Settings,
        folder: Path,
        progress: Progress,
        events: RunEvents | None = None,
        *,
        force_new: bool = False,
    ) -> None:
        """Open the run in a folder. Its steps and trials are reported to `events`.

        With `force_new`, the run trains even if no new label has arrived since the last run.
        """
        self.events: RunEvents = events or NoEvents()
        self.force_new = force_new
        self.training = training
        self.settings = settings
        self.folder = folder
        self.journal = Journal(folder / "steps")
        self.progress = progress
        self.scores: dict[str, tuple[ModelAnswers, SkipCounts]] = {}

    def result(self, step: str, of: type[T]) -> T:
        """Return the result of a step. Raises Fatal if the step is not complete."""
        value = self.journal.result(step, of)
        if value is None:
            raise Fatal(f"the step {step} of {self.folder} is not complete", "complete the run first: repeat the command run")
        return value

    @property
    def records(self) -> Path:
        """The folder of the snapshot's records."""
        return self.folder / "records"

    @property
    def package(self) -> Path:
        """The folder in which the package of the version is built."""
        return self.folder / "package"

    @cached_property
    def plan(self) -> RunPlan:
        return self.result("plan", RunPlan)

    @cached_property
    def signature(self) -> Signature:
        return parse_signature(self.plan.signature)

    @cached_property
    def frozen(self) -> Frozen:
        return self.result("freeze", Frozen)

    @property
    def frozen_at(self) -> datetime:
        """The time at which the run froze its snapshot.

        Attestations carry this time, so that a repeated step writes the same bytes.
        """
        return datetime.fromtimestamp(self.frozen.now_ms / 1_000, UTC)

    @cached_property
    def copied(self) -> Counted:
        return self.result("copy", Counted)

    @cached_property
    def rows(self) -> JoinResult:
        return self.result("join", JoinResult)

    @cached_property
    def joined(self) -> Joined:
        """The result of the join, computed from the copied records.

        Raises Fatal (exit code 3) if the records have changed since they were copied.
        """
        decoder: Decoder
        try:
            if self.training.snapshot.from_ == "features":
                decoder = FeatureLogDecoder(self.signature, create_reader(self.settings))
            else:
                decoder = decoder_factory.create_decoder(self.settings, self.signature)
        except FormatMismatch as error:
            message = f"input.format {self.settings.input.format} does not match the signature: {error}"
            raise Fatal(message, "set signature in training.yaml to a file that matches the events", USAGE) from None
        others = [] if self.plan.champion is None else [parse_signature(self.plan.champion)]
        return join_labels.join(self.records, self.frozen, self.settings, self.training, self.signature, decoder, others)

    @cached_property
    def split(self) -> Split:
        return join_labels.split(self.joined, self.training)

    @property
    def learned_until_ms(self) -> int:
        """The end (Unix ms) of the training and validation parts; later events are the hold-out."""
        return self.joined.mature_ms - self.training.snapshot.hold_out

    @cached_property
    def recipe(self) -> Recipe:
        return Own() if self.training.recipe.command else named(self.training.recipe.name, self.training.gpus)

    @cached_property
    def store(self) -> Store:
        return open_source(self.settings)

    @property
    def channel(self) -> str:
        return self.training.publish.channel or self.settings.model.tag

    @cached_property
    def key(self) -> PrivateKey:
        """The private key that signs versions, attestations and channel moves.

        Raises Fatal (exit code 2) if no key is configured, RegistryError if the key cannot be read.
        """
        publish = self.training.publish
        if publish.key_file is None:
            hint = "create a key: model-registry keygen training; then set publish.key_file to training.key"
            raise Fatal(
                "publish.key_file is not set, but a version is published only if it is signed with this key", hint, USAGE
            )
        return read_private(publish.key_file, read_password(publish.password_file))

    @cached_property
    def trusted(self) -> list[TrustedKey]:
        """The public keys that the run trusts: the keys of the scorer's policy, and its own key.

        Raises RegistryError, Fatal (exit code 2).
        """
        policy = self.settings.model.policy
        return [*(read(policy).keys if policy else ()), TrustedKey("publish.key_file", self.key.public(), None)]

    def serves(self) -> Resolution | None:
        """Return the version that the channel points to, or None without a channel or repository. Raises RegistryError."""
        source = reference.parse(self.settings.model.source)
        if source.kind == "oci" and not Path(source.repository, "index.json").exists():
            return None
        return standing(self.store, self.channel)

    def version(self, digest: str) -> Package:
        """Fetch the version with this digest. Raises RegistryError, also if the scorer's policy does not admit the version."""
        model = self.settings.model.model_copy(update={"tag": digest})
        return pull_version(self.settings.model_copy(update={"model": model}))[0]

    def draw(self, name: str, picture: str) -> None:
        """Write a plot to `pictures/NAME.svg` in the folder of the run.

        `picture` is SVG text; if the text is empty, no file is written. Raises Fatal (exit code 3) if the file cannot be
        written.
        """
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
        """The id of the run: the first 12 hexadecimal digits of a SHA-256 digest of everything that affects the model.

        The digest covers the frozen offset ranges, their records, the configuration with its seed, the signature and the
        environment.
        """
        parts = (self.frozen, self.copied.digest, self.plan.config, self.plan.signature, self.plan.environment)
        return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:12]


def config(training: TrainingSettings, settings: Settings) -> dict[str, Any]:
    """Return the settings that affect the model or its evaluation, without secrets and paths. Raises RegistryError."""
    own_settings = training.model_dump(mode="json", exclude=PRIVATE)
    recipe = training.recipe
    own_code = {CODE: own.code(recipe)} if recipe.command else {}
    if not recipe.command:
        own_settings["recipe"] = recipe.name
    sections = {*SCORERS, "features"} if training.snapshot.from_ == "features" else set(SCORERS)
    scorers = settings.model_dump(mode="json", include=sections, exclude={"input": {"schema_file"}})
    return {"training": own_settings, "scorer": {**scorers, "schema": schema(settings)}, **own_code}


def schema(settings: Settings) -> str | None:
    """Return the digest of the schema file of the events, or None if no schema file is configured.

    Raises RegistryError if the file cannot be read.
    """
    path = settings.input.schema_file
    return digests.from_bytes(atomic_files.read_named("schema", path)) if path else None
