"""`scorer bench`: measure a model by batch size on this machine, without a broker.

The command uses the code of `scorer run`: the version is loaded, checked and warmed up, and batches of JSON events that match
its signature are decoded, scored and encoded.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich import box
from rich.bar import Bar
from rich.console import Group
from rich.table import Table

from model_registry import package
from model_registry.channels.channel import Resolution
from model_registry.errors import BadReference
from model_registry.oci import reference
from model_registry.oci.digests import from_bytes
from model_registry.package import Package, field_sources
from model_registry.package.signature import Signature
from publisher.errors import REFUSED, Fatal
from publisher.runtime.command_line import Json, Set, print_data
from scorer.backends.base import ModelRefused
from scorer.backends.cost_curve import measure_cost_curve
from scorer.backends.onnx.batch_buckets import CANDIDATES, select_sizes
from scorer.crash_isolation.trial_load import tried_loader
from scorer.decoding.batch import Batch
from scorer.decoding.record_metadata import BatchMetadata
from scorer.models.loaded_model import decode_golden
from scorer.models.registry_access import pull_version
from scorer.models.servable import Servable, make
from scorer.native.librdkafka import plugin_status
from scorer.schema_export.example_records import ExampleRecord, create_example_record, example_event
from scorer.settings import Settings, load
from scorer.settings.tables import TableSettings
from scorer.tables.lookup import ExampleTables
from scorer.worker.encode import TargetTopic
from scorer.worker.score_batch import BatchScorer

ROUNDS = 5
SIZES = (2, 4, 16, 64, 256, 1_024, 4_096)
BASIS: dict[str, Any] = {
    "name": "bench",
    "kafka": {"bootstrap_servers": "127.0.0.1:1"},
    "input": {"topics": ["events"]},
    "output": {"topic": "scores"},
}
"""The settings if no configuration is given. No client connects to these addresses."""
RECORD_BYTES = 1_000_000_000  # no limit for scores
WIDTH = 16  # width of the longest bar of a table, in characters


@dataclass(frozen=True, slots=True)
class BatchCost:
    """The measured times of batches of one size.

    Attributes:
        size: the number of events in a batch.
        model: the seconds that the model takes for a batch.
        loop: the seconds that a batch takes in the whole loop: to decode it, run the model and encode the scores.
        events_per_second: the throughput of one process, without the time of the Kafka clients.
    """

    size: int
    model: float
    loop: float
    events_per_second: float


@dataclass(frozen=True, slots=True)
class BenchReport:
    """The result of a benchmark.

    The line T(B) = a + b B is fitted to the measured times T of the loop (decode, run the model, encode) for B events.

    Attributes:
        buckets: the batch sizes to which the model pads batches; empty without padding.
        worthwhile: the batch sizes for padding that the measured times of the model suggest.
        points: the measured times, by ascending batch size.
        fixed: a, in seconds per batch.
        per_event: b, in seconds per event.
        latency_target: the setting `batching.latency_target_ms` in seconds.
        batch: the largest measured batch size whose time of the loop is within the latency target; 0 if there is none.
        events_per_second: the highest throughput among the measured batch sizes.
        native: which parts of the native library are in use, in words.
    """

    version: str
    device: str
    buckets: tuple[int, ...]
    worthwhile: tuple[int, ...]
    points: tuple[BatchCost, ...]
    fixed: float
    per_event: float
    latency_target: float
    batch: int
    events_per_second: float
    native: str


def bench(
    model: Annotated[str, typer.Argument(help="A package folder, or a version, REPOSITORY:TAG.", show_default=False)],
    config: Annotated[Path | None, typer.Option(help="The configuration that sets device, backend and batching.")] = None,
    flags: Set = None,
    as_json: Json = False,
) -> None:
    """Measure the time of a model by batch size and the throughput of a scorer on this machine. Needs no broker."""
    report = measure(*settings_for(model, config, flags or []))
    print_data(as_json, asdict(report), lambda: as_tables(report))


def settings_for(model: str, config: Path | None, flags: Sequence[str]) -> tuple[Settings, Package | None]:
    """Return the settings of the benchmark, and the package if `model` is a folder, else None.

    Args:
        model: a package folder, or a reference with a tag or a digest.
        config: a configuration; None for defaults.
        flags: `--set` flags.

    Raises:
        SettingsError: The configuration is not valid.
        RegistryError: The reference is not valid, or has neither tag nor digest.
    """
    folder = Path(model)
    if folder.is_dir():
        path = folder.resolve()
        model_package = package.read(folder, name=path.name, version="0", digest=from_bytes(str(path).encode()))
        overrides = {"source": "oci:."}
    else:
        model_package = None
        with package.suggest_folder(model):
            ref = reference.parse(model)
            if not (version := ref.tag or ref.digest):
                hint = "add a tag, such as :1.4.0 or :prod, or give a package folder"
                raise BadReference(f"{model} has no version", hint)
        overrides = {"source": str(ref.bare()), "tag": version}
    flags = [*flags, *(f"model.{key}={value}" for key, value in overrides.items())]
    return load(config or BASIS, flags).settings, model_package


def measure(settings: Settings, folder: Package | None) -> BenchReport:
    """Measure the package `folder`, or the version that the settings name if `folder` is None.

    Raises:
        Fatal: The version is rejected.
        RegistryError: The version cannot be pulled.
    """
    try:
        model_package = folder or pull_version(settings)[0]
        signature = model_package.signature
        tables = _tables_of(signature)
        parsed = signature is None or field_sources.only_value_fields(signature).fields or settings.output.carry
        input_settings = settings.input.model_copy(update={"format": "json" if parsed else "bytes"})
        settings = settings.model_copy(update={"input": input_settings, "tables": tables})
        resolution = Resolution(model_package.digest, model_package.version, 0)
        rows = ExampleTables(_example_values(model_package))
        servable = make(model_package, resolution, tried_loader(settings, remember=folder is None, tables=rows), settings)
    except ModelRefused as error:
        raise Fatal(f"the version is rejected: {error}", "push a version that passes these checks", REFUSED) from error
    largest = settings.batching.max_events
    sizes = sorted({size for size in (*CANDIDATES, *SIZES) if size < largest} | {largest})
    signature = servable.loaded.model.signature()
    events = [example.event for example in model_package.golden] or [example_event(signature)]
    curve, costs = _measure_sizes(settings, servable, [create_example_record(signature, event) for event in events], sizes)
    target = settings.batching.latency_target_ms / 1_000
    fixed, per_event = _fit_line(costs)
    return BenchReport(
        version=f"{model_package.name}:{model_package.version}",
        device=settings.model.device,
        buckets=getattr(servable.loaded.model, "buckets", ()),
        worthwhile=select_sizes({size: curve[size] for size in CANDIDATES if size in curve}),
        points=costs,
        fixed=fixed,
        per_event=per_event,
        latency_target=target,
        batch=max((cost.size for cost in costs if cost.loop <= target), default=0),
        events_per_second=max(cost.events_per_second for cost in costs),
        native=plugin_status(),
    )


def _tables_of(signature: Signature | None) -> dict[str, TableSettings]:
    """Return settings for each table that the version joins, by the name of the table.

    The topics in these settings are never read. The key of an event's record is the key of its row.
    """
    names = field_sources.joined_fields(signature) if signature is not None else ()
    return {name: TableSettings(topic=name) for name in names}


def _example_values(model_package: Package) -> dict[str, NDArray[Any]]:
    """Return the value of each field in the first golden example, by field name; empty without golden examples."""
    signature = model_package.signature
    if signature is None or not model_package.golden:
        return {}
    tensors = decode_golden(signature, model_package.golden[:1]).tensors
    values: dict[str, NDArray[Any]] = {}
    for tensor in signature.fed:
        rows = tensors[tensor.tensor]
        for column, field in enumerate(tensor.fields):
            values[field.name] = rows if len(tensor.fields) == 1 else rows[:, column : column + 1]
    return values


def _measure_sizes(
    settings: Settings, servable: Servable, events: Sequence[ExampleRecord], sizes: Sequence[int]
) -> tuple[dict[int, float], tuple[BatchCost, ...]]:
    target = TargetTopic(settings.output.topic, 1, RECORD_BYTES)
    scoring = BatchScorer(settings, target, target)
    batches = {size: _batch(settings.input.topics[0], list(islice(cycle(events), size))) for size in sizes}
    decoder = servable.loaded.decoder
    decoded = {size: decoder.decode(b.values, BatchMetadata(b, range(size))).tensors for size, b in batches.items()}
    curve = measure_cost_curve(sizes, lambda size: servable.loaded.run(decoded[size]), rounds=ROUNDS)
    loop = measure_cost_curve(list(curve), lambda size: scoring.score(batches[size], servable), rounds=ROUNDS)
    return curve, tuple(BatchCost(size, curve[size], seconds, size / seconds) for size, seconds in loop.items())


def _fit_line(points: Sequence[BatchCost]) -> tuple[float, float]:
    """Return (a, b) of the line T(B) = a + b B that fits the loop times best. Neither a nor b is negative.

    The fit minimizes the squares of the relative errors.
    """
    if len(points) < 2:
        return 0.0, points[0].loop / points[0].size
    sizes, seconds = (np.array(column, np.float64) for column in zip(*((p.size, p.loop) for p in points), strict=True))
    b, a = np.polyfit(sizes, seconds, 1, w=1 / seconds)
    return max(0.0, float(a)), max(0.0, float(b))


def _batch(topic: str, events: list[ExampleRecord]) -> Batch:
    count = len(events)
    return Batch(
        topics=[topic] * count,
        partitions=[0] * count,
        offsets=list(range(count)),
        keys=[event.key for event in events],
        values=[event.value for event in events],
        timestamps=[event.time for event in events],
        headers=[event.headers or None for event in events],
    )


def as_tables(report: BenchReport) -> Group:
    """Return a table of the measured times and throughputs with bars, followed by lines with the conclusions.

    The bars of the times have a logarithmic scale, and the bars of the throughputs a linear one.
    """
    table = Table(title=f"{report.version} on {report.device}", box=box.SIMPLE_HEAD, title_justify="left")
    for column in ("batch", "T(B) ms", "loop ms"):
        table.add_column(column, justify="right", no_wrap=True, min_width=7)
    table.add_column("", no_wrap=True, min_width=WIDTH)
    table.add_column("events/s", justify="right", no_wrap=True, min_width=8)
    table.add_column("", no_wrap=True, min_width=WIDTH)
    shortest = min(point.loop for point in report.points) / 2
    longest = max(point.loop for point in report.points)
    for point in report.points:
        height = math.log(point.loop / shortest) / math.log(longest / shortest)
        table.add_row(
            f"{point.size:,}",
            f"{point.model * 1e3:,.3f}",
            f"{point.loop * 1e3:,.3f}",
            Bar(1.0, 0.0, height, width=WIDTH, color="cyan"),
            f"{point.events_per_second:,.0f}",
            Bar(report.events_per_second, 0.0, point.events_per_second, width=WIDTH, color="green"),
        )
    return Group(table, *_lines(report))


def _lines(report: BenchReport) -> list[str]:
    buckets = _list(report.buckets)
    padding = f"The model pads batches to {buckets}" if buckets else "The model does not pad batches"
    target = report.latency_target * 1e3
    return [
        f"A batch takes {report.fixed * 1e3:.3f} ms + {report.per_event * 1e6:.2f} us per event, with decoding and encoding.",
        f"{padding}; the measured costs suggest the sizes {_list(report.worthwhile)}.",
        f"Batches of up to {report.batch:,} events meet the latency target of {target:g} ms.",
        f"One process scores {report.events_per_second:,.0f} events/s, without the time of the Kafka clients.",
        f"Native library: {report.native}.",
    ]


def _list(sizes: tuple[int, ...]) -> str:
    return ", ".join(f"{size:,}" for size in sizes)
