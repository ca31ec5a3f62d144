"""`scorer bench`: what a model costs here, by batch size, and what the loop can reach with it. No broker is asked.

Uses the same code as `scorer run` for every step: the version is loaded, checked and warmed, and batches of JSON events that
its signature asks for are decoded, scored and encoded.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from model_registry import package
from model_registry.channels import channel
from model_registry.channels.channel import Resolution
from model_registry.oci import reference
from model_registry.oci.digests import of_bytes
from model_registry.package import Package
from model_registry.package.signature import Signature
from model_registry.trust.gate import admission
from publisher.errors import Fatal
from scorer import backends
from scorer.backends.cost_curve import measured
from scorer.backends.onnx.buckets import CANDIDATES, choose
from scorer.events.batch import Batch
from scorer.loop.scoring import Scoring, Target
from scorer.servables.loaded import loader
from scorer.servables.servable import Servable, make
from scorer.servables.source import open_cache, open_source
from scorer.settings import Settings, load

ROUNDS = 5
SIZES = (2, 4, 16, 64, 256, 1_024, 4_096)
BASIS: dict[str, Any] = {
    "name": "bench",
    "kafka": {"bootstrap_servers": "127.0.0.1:1"},
    "input": {"topics": ["events"]},
    "output": {"topic": "scores"},
}
"""The settings without a configuration; nothing connects."""
RECORD_BYTES = 1_000_000_000  # no score is too large here


@dataclass(frozen=True, slots=True)
class Point:
    """One batch size. Seconds of the model alone, and of the loop: decoding, the model, encoding."""

    size: int
    model: float
    loop: float

    @property
    def events_per_second(self) -> float:
        """What one process reaches in batches of this size, Kafka's clients not counted."""
        return self.size / self.loop


@dataclass(frozen=True, slots=True)
class Report:
    """`buckets` are those the model runs in, empty where it runs each batch at its size; `worthwhile` those of the usual ones
    that its cost curve would choose. `fixed` and `per_event` are the a and b of T(B) = a + b B, in seconds, of the loop.
    `batch` is the largest of the sizes that meets the latency target (seconds), 0 where none does; `events_per_second` is what
    the best size reaches."""

    version: str
    device: str
    buckets: tuple[int, ...]
    worthwhile: tuple[int, ...]
    points: tuple[Point, ...]
    fixed: float
    per_event: float
    latency_target: float
    batch: int
    events_per_second: float

    def to_dict(self) -> dict[str, Any]:
        """For --json."""
        points = [asdict(point) | {"events_per_second": point.events_per_second} for point in self.points]
        return {**asdict(self), "points": points}


def settings_for(model: str, config: Path | None, flags: Sequence[str]) -> tuple[Settings, Package | None]:
    """The settings to measure under, and the package where `model` is a folder; else it is a reference, with a tag or a digest.

    Raises SettingsError, RegistryError, and Fatal where the reference names no version.
    """
    folder = Path(model)
    if folder.is_dir():
        found = package.read(folder, name=folder.resolve().name, version="0", digest=of_bytes(str(folder.resolve()).encode()))
        named = {"source": "oci:."}
    else:
        found, ref = None, reference.parse(model)
        if not (version := ref.tag or ref.digest):
            raise Fatal(f"{model} names no version", "add a tag, such as :1.4.0 or :prod, or name a package folder", 2)
        named = {"source": str(ref.bare()), "tag": version}
    flags = [*flags, *(f"model.{key}={value}" for key, value in named.items())]
    return load(config or BASIS, flags).settings, found


def bench(settings: Settings, folder: Package | None) -> Report:
    """Measure a package, or the version that the settings name.

    Raises Fatal where it cannot be served here, RegistryError where it cannot be had.
    """
    settings = settings.model_copy(update={"input": settings.input.model_copy(update={"format": "json"})})
    try:
        found = folder or _pulled(settings)
        load = loader(backends.find(settings.model), settings)
        servable = make(found, Resolution(found.digest, found.version, 0), load, settings)
    except backends.BackendMissing as error:
        raise Fatal(str(error), error.hint, 2) from error
    except backends.ModelRefused as error:
        raise Fatal(f"the version is refused: {error}", "push a version that passes", 3) from error
    largest = settings.batching.max_events
    sizes = sorted({size for size in (*CANDIDATES, *SIZES) if size < largest} | {largest})
    events = [example.event for example in found.golden] or [example(servable.loaded.model.signature())]
    curve, points = _measured(settings, servable, [orjson.dumps(event) for event in events], sizes)
    target = settings.batching.latency_target_ms / 1_000
    return Report(
        f"{found.name}:{found.version}",
        settings.model.device,
        getattr(servable.loaded.model, "buckets", ()),
        choose({size: curve[size] for size in CANDIDATES if size in curve}),
        points,
        *_line(points),
        target,
        max((point.size for point in points if point.loop <= target), default=0),
        max(point.events_per_second for point in points),
    )


def example(signature: Signature) -> dict[str, Any]:
    """An event that this signature can be fed from."""
    values = {"string": "a", "bool": False}
    event: dict[str, Any] = {}
    for tensor in signature.inputs:
        value = values.get(tensor.dtype, 0.123456 if tensor.dtype.startswith("float") else 1)
        event |= {field.name: [value] * field.array if field.array else value for field in tensor.fields}
    return event


def _pulled(settings: Settings) -> Package:
    store, cache = open_source(settings), open_cache(settings.model)
    resolution = channel.resolve(store, settings.model.tag)
    admission(settings.model.policy, cache.root).check(store, resolution.digest, resolution.version, datetime.now(UTC))
    return cache.fetch(store, resolution.digest, version=resolution.version)


def _measured(
    settings: Settings, servable: Servable, events: Sequence[bytes], sizes: Sequence[int]
) -> tuple[dict[int, float], tuple[Point, ...]]:
    """Seconds of the model by size, and of model and loop by size."""
    target = Target(settings.output.topic, 1, RECORD_BYTES)
    scoring = Scoring(settings, target, target)
    batches = {size: _batch(settings.input.topics[0], list(islice(cycle(events), size))) for size in sizes}
    decoded = {size: servable.loaded.decoder.decode(batch.values).tensors for size, batch in batches.items()}
    curve = measured(sizes, lambda size: servable.loaded.model.run(decoded[size]), rounds=ROUNDS)
    loop = measured(list(curve), lambda size: scoring.score(batches[size], servable, lambda: 0), rounds=ROUNDS)
    return curve, tuple(Point(size, curve[size], seconds) for size, seconds in loop.items())


def _line(points: Sequence[Point]) -> tuple[float, float]:
    """a and b of T(B) = a + b B by least squares of the relative errors, neither negative."""
    if len(points) < 2:
        return 0.0, points[0].loop / points[0].size
    sizes, seconds = (np.array(column, np.float64) for column in zip(*((p.size, p.loop) for p in points), strict=True))
    b, a = np.polyfit(sizes, seconds, 1, w=1 / seconds)
    return max(0.0, float(a)), max(0.0, float(b))


def _batch(topic: str, events: list[bytes]) -> Batch:
    """Events as intake takes them, of one partition."""
    count = len(events)
    return Batch([topic] * count, [0] * count, list(range(count)), [None] * count, list(events), [0] * count, [None] * count)
