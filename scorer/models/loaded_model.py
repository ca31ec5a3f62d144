"""Loading of a model: open it, check its golden examples (events with expected scores), warm it up, and measure its cost.

A loaded model has no role, such as champion or canary, yet. Only the methods of `LoadedModel` run on the scoring thread.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import orjson

from model_registry.errors import Refused
from model_registry.package import Package, batch_probe, field_sources
from model_registry.package.golden_examples import GoldenExample, agrees, check_has_example
from model_registry.package.model_inputs import Tensors, neutral_rows
from model_registry.package.model_outputs import OutputMismatch
from model_registry.package.padding import is_ragged
from model_registry.package.signature import Output, Signature
from publisher.errors import Fatal
from publisher.runtime.dependency_wait import DependencyUnavailable
from scorer.backends import select
from scorer.backends.base import Backend, InferenceFailed, Model, ModelBroken, ModelRefused
from scorer.backends.cost_curve import measure_cost_curve
from scorer.decoding import decoder_factory
from scorer.decoding.json.decoder import JsonDecoder
from scorer.decoding.types import Decoded, Decoder, FormatMismatch
from scorer.models.constant_fallback import shape_difference
from scorer.models.latency_model import LatencyModel
from scorer.models.length_bucketing import LengthBucketedRuns
from scorer.scores.outputs import Scores
from scorer.settings import Settings
from scorer.tables.lookup import TableLookup, UnreadTables
from scorer.tables.tables import Tables

T = TypeVar("T")
WARM_SIZES = (1, 8, 64, 512)
FEW = 8  # golden examples per batch: few, so that a slow or cold model also meets the deadline


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """The model of one version, with its decoder and its measured cost, ready to score.

    Attributes:
        model: the open model.
        decoder: the decoder of events to the input tensors of the model.
        cost: the expected time of a batch, from decoding to the commit of its transaction.
        inference: the expected time of the model alone for a batch.
        runs: the division of a batch into several runs of the model; None if the model runs once per batch.
        broken: a function that creates the error to raise if the model fails on the control row.
        control: the control row: one row of input tensors that the model scored when it was loaded. If the model fails on other
            rows, the control row shows whether the model itself is broken.
    """

    model: Model
    decoder: Decoder
    cost: LatencyModel
    inference: LatencyModel
    runs: LengthBucketedRuns | None = None
    broken: Callable[[InferenceFailed], Fatal] = ModelBroken
    control: Tensors = field(default_factory=dict)

    def run(self, tensors: Tensors, alive: Callable[[], object] = lambda: None) -> Tensors:
        """Return the model's outputs for the tensors of valid events.

        If a batch is divided into several runs, `alive` is called before each run. Raises InferenceFailed,
        DependencyUnavailable.
        """
        return self.model.run(tensors) if self.runs is None else self.runs.run(self.model, tensors, alive)

    def score(self, tensors: Tensors, alive: Callable[[], object] = lambda: None) -> Scores:
        """Return the scores of valid events. The arguments and the errors are the same as those of `run`."""
        outputs = self.run(tensors, alive)
        try:
            return Scores(self.model.signature(), outputs)
        except OutputMismatch as error:
            raise InferenceFailed(str(error)) from error

    def check_control_row(self) -> None:
        """Check that the model still scores a row that it scored when it was loaded.

        Raises the error from `broken` if it does not, and DependencyUnavailable if the model's server is unavailable.
        """
        try:
            self.run(self.control)
        except InferenceFailed as error:
            raise self.broken(error) from None


def loader(
    settings: Settings, *, probe: bool | None = None, tables: TableLookup | None = None
) -> Callable[[Package], LoadedModel]:
    """Return a function that loads a package with the configured backend and prepares its model (see `prepare_model`).

    The returned function raises ModelRefused with the reason, and DependencyUnavailable.

    Args:
        settings: the configuration.
        probe: whether to check that no score depends on the other events in the same batch. If None, only models on servers are
            checked, because a trial process has already checked the models that run in this process.
        tables: the tables of joined fields. If None, this process reads no tables: a version with joined fields is loaded, but
            its decoder raises Fatal.

    Raises:
        BackendMissing: The backend or its device is missing.
    """
    # Models in this process are checked in their trial process.
    backend = select.backend_for(settings.model)
    probed = settings.model.backend != "onnx-runtime" if probe is None else probe

    def load(package: Package) -> LoadedModel:
        model, decoder = open_with_decoder(
            backend, package, lambda signature: decoder_factory.create_decoder(settings, signature, tables or UnreadTables())
        )
        return prepare_model(model, decoder, package.golden, settings, probe=probed)

    return load


def prepare_tables(load: Callable[[Package], LoadedModel], tables: Tables | None) -> Callable[[Package], LoadedModel]:
    """Return a function that loads a package with `load`, and then waits until the rows of the tables are decoded.

    The reader thread of the tables decodes the model's joined fields in all rows, so that later look-ups decode no rows. If
    `tables` is None, `load` itself is returned.

    The returned function raises the errors of `load`. It also raises ModelRefused if the format of a table's rows cannot
    contain a joined field.
    """
    if tables is None:
        return load

    def load_and_prepare(package: Package) -> LoadedModel:
        loaded = load(package)
        with ExitStack() as after_failure:
            after_failure.callback(loaded.model.close)
            try:
                tables.prepare(loaded.model.signature())
            except FormatMismatch as error:
                raise ModelRefused(str(error)) from None
            after_failure.pop_all()
        return loaded

    return load_and_prepare


def open_with_decoder(backend: Backend, package: Package, create_decoder: Callable[[Signature], T]) -> tuple[Model, T]:
    """Open the model of a package, and create the decoder of its events.

    Raises:
        ModelRefused: the model cannot be opened, or `create_decoder` raised FormatMismatch.
        DependencyUnavailable: the model's server is unavailable.
    """
    model = backend.open(package)
    try:
        return model, create_decoder(model.signature())
    except FormatMismatch as error:
        model.close()
        raise ModelRefused(str(error)) from None


def prepare_model(
    model: Model,
    decoder: Decoder,
    golden: Sequence[GoldenExample],
    settings: Settings,
    broken: Callable[[InferenceFailed], Fatal] = ModelBroken,
    *,
    probe: bool = False,
) -> LoadedModel:
    """Check a model with its golden examples, warm the model up, measure its cost, and return it ready to score.

    The model is closed if an error is raised.

    Args:
        model: the open model.
        decoder: the decoder of events for the model.
        golden: the golden examples of the package: events with their expected scores.
        settings: the configuration.
        broken: the attribute `broken` of the returned LoadedModel.
        probe: whether to check that no score depends on the other events in its batch.

    Raises:
        ModelRefused: the model fails a check.
        DependencyUnavailable: the model's server is unavailable.
    """
    signature = model.signature()
    runs = LengthBucketedRuns(signature, settings.model.deadline_ms / 1_000) if signature.varies or signature.alone else None
    loaded = LoadedModel(model, decoder, LatencyModel(), LatencyModel(), runs, broken)
    try:
        check_has_example(signature, golden)
        if probe:
            check_batches(model, golden, settings)
        check_golden(loaded, golden)
        rows = decode_golden(signature, golden).tensors if golden else neutral_rows(signature)
        shown = warm(loaded, rows, settings.batching.max_events)
        check_written(shown, loaded.model.signature(), settings)
        check_fallback(shown, loaded.model.signature(), settings)
    except Refused as error:
        model.close()
        raise ModelRefused(f"{error}; {error.hint}") from None
    except (ModelRefused, DependencyUnavailable):
        model.close()
        raise
    return replace(loaded, control={name: tensor[:1] for name, tensor in rows.items()})


def check_golden(loaded: LoadedModel, golden: Sequence[GoldenExample]) -> None:
    """Check that the score of each golden example is the expected one, within its tolerance. Raises ModelRefused."""
    if not golden:
        return
    signature = loaded.model.signature()
    decoded = decode_golden(signature, golden)
    for row, poison in sorted(decoded.rejected.items()):
        raise ModelRefused(f"golden example {row + 1} is not a valid event: {poison}")
    try:
        few = FEW if signature.batch_tolerance is None else 1  # such a model is tested by single events
        parts = [decoded.select(start, start + few) for start in range(0, len(golden), few)]
        answers = [orjson.loads(answer) for part in parts for answer in loaded.score(part).encoded()]
    except InferenceFailed as error:
        raise ModelRefused(f"the golden examples cannot be scored: {error}") from error
    for row, (example, answer) in enumerate(zip(golden, answers, strict=True), start=1):
        if not agrees(example.score, answer, example.tolerance):
            raise ModelRefused(
                f"golden example {row} must score {example.score} within {example.tolerance}, but scores {answer}"
            )


def check_batches(model: Model, golden: Sequence[GoldenExample], settings: Settings) -> None:
    """Check, with golden examples as events, that no score depends on the other events in its batch. Raises Refused."""
    # The check is skipped if a golden example cannot be decoded.
    signature = model.signature()
    decoded = decode_golden(signature, golden) if golden else None
    if decoded is None or not decoded.rejected:
        on_cpu = settings.model.backend == "onnx-runtime" and settings.model.device == "cpu"
        most = settings.batching.max_events
        rows = decoded.tensors if decoded else None
        batch_probe.check_batch_independence(
            signature, rows, model.run, InferenceFailed, max_rows=most, rounds_coarsely=not on_cpu
        )


def decode_golden(signature: Signature, golden: Sequence[GoldenExample]) -> Decoded:
    """Decode the events of golden examples, which are JSON objects for every input format of the scorer."""
    values = [orjson.dumps(example.event) for example in golden]
    return JsonDecoder(field_sources.read_by_name(signature), None, max(map(len, values))).decode(values)


def warm(loaded: LoadedModel, tensors: Tensors, max_events: int) -> Scores:
    """Run batches of several sizes, and record their times in `loaded.cost` and `loaded.inference`.

    A batch consists of the rows of `tensors`, repeated up to the size of the batch. No batch is larger than
    `max_events`.

    Returns:
        The scores of the last batch.
    """
    sizes = sorted({min(size, max_events) for size in WARM_SIZES})
    scores: list[Scores] = []

    def run(size: int) -> None:
        try:
            batch = {name: np.resize(tensor, (size, *tensor.shape[1:])) for name, tensor in tensors.items()}
            scores[:] = [loaded.score(batch)]
        except InferenceFailed as error:
            raise ModelRefused(f"the model cannot score a batch of {size}: {error}") from error

    for size, seconds in measure_cost_curve(sizes, run).items():
        loaded.cost.observe(size, seconds)
        loaded.inference.observe(size, seconds)
    return scores[0]


def check_written(scores: Scores, signature: Signature, settings: Settings) -> None:
    """Check that score records in the configured format can represent the scores. Raises ModelRefused with the remedy."""
    if settings.output.format == "json":
        return
    for output in signature.outputs:
        if kind := _unsupported_part(output, scores):
            name = output.name or output.tensor
            format_ = settings.output.format
            error = f"output {name!r} has {kind}, which records in {format_} cannot represent"
            raise ModelRefused(f"{error}; set output.format to json")


def check_fallback(shown: Scores, signature: Signature, settings: Settings) -> None:
    """Check that `model.fallback` has the JSON structure of the model scores `shown`. Raises ModelRefused with the remedy."""
    if settings.model.fallback.score is None:
        return
    fixed = not any(-1 in (output.shape or ()) for output in signature.outputs)
    if difference := shape_difference(settings.model.fallback.score, orjson.loads(shown.encoded()[0]), lengths=fixed):
        raise ModelRefused(f"model.fallback does not fit this version: {difference}; correct or remove model.fallback")


def _unsupported_part(output: Output, scores: Scores) -> str:
    """Describe what only JSON records can represent in an output; return "" if every format can represent the output."""
    column = scores.columns[output.name]
    if (column[0] if is_ragged(column) else column).dtype == object:
        return "strings"
    if output.top:
        return "classes with their labels (top)"
    return "arrays of several open lengths" if output.shape and output.shape.count(-1) > 1 else ""
