"""The product's loop over events in memory with a loaded model: its throughput and its latency."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from model_registry import package
from model_registry.channels.channel import Resolution
from publisher.runtime.context import Context
from scorer.crash_isolation.in_flight_journal import InFlightJournal
from scorer.crash_isolation.quarantine import Quarantine
from scorer.models.loaded_model import loader
from scorer.models.servable import make
from scorer.observability.liveness import WorkerProgress
from scorer.observability.metrics import Metrics
from scorer.observability.traces import Traces
from scorer.settings import Settings, load
from scorer.worker.encode import TargetTopic
from scorer.worker.score_batch import BatchScorer
from scorer.worker.worker import Worker
from tests.support.transport_memory import MemoryLog, transport

RECORD_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class Drained:
    """The figures of a run: events per second, and the 99th percentile of the latency (seconds)."""

    events_per_second: float
    p99: float


class Ground:
    """A servable of a package, with these settings of the model."""

    def __init__(self, folder: Path, event_format: str, cache: Path, **model: Any) -> None:
        values = {
            "name": "memory",
            "kafka": {"bootstrap_servers": "127.0.0.1:1"},
            "input": {"topics": ["events"], "format": event_format, "max_event_bytes": RECORD_BYTES},
            "output": {"topic": "scores"},
            "model": {"source": "oci:.", "cache": str(cache), "deadline_ms": 2_500, **model},
        }
        self._settings = load(values).settings
        content = package.read(folder, name=folder.name, version="1.0.0", digest="sha256:" + "0" * 64)
        ready = loader(self._settings)
        self.servable = make(content, Resolution(content.digest, "1.0.0", 1), ready, self._settings)

    def run(self, events: Sequence[bytes], log: MemoryLog, max_events: int, due: Sequence[float] | None = None) -> Drained:
        """Answer all events, in batches of at most `max_events`. `due` as in MemoryConsumer."""
        batching = self._settings.batching.model_copy(update={"max_events": max_events})
        settings: Settings = self._settings.model_copy(update={"batching": batching})
        target = TargetTopic("scores", 1, RECORD_BYTES)
        intake, session = transport(settings.owner, "events", events, log, due)
        versions: Any = SimpleNamespace(
            serving={"champion": self.servable},
            champion=self.servable,
            canary=None,
            trusted_revision=math.inf,
            registry_revision=lambda _: math.inf,
            serve_aspired=lambda: False,
            poll_now=lambda: None,
        )
        loop = Worker(
            settings,
            intake=intake,
            session=session,
            versions=versions,
            scorer=BatchScorer(settings, target, target),
            quarantine=Quarantine(settings, InFlightJournal(), versions, Context()),
            metrics=Metrics(session.counters, settings.model),
            progress=WorkerProgress(log.clock()),
            traces=Traces(),
        )
        began = log.clock()
        loop.run(lambda: len(log.visible) > len(events), lambda: None)
        session.close()
        ended, counts = log.committed_at[-1][0], np.array([count for _, count in log.committed_at])
        batch_of = np.searchsorted(counts - 1, np.arange(1, len(events) + 1))  # one record is the swap to the version
        times = np.array([at for at, _ in log.committed_at])[np.minimum(batch_of, len(counts) - 1)]
        latency = times - (np.array(due) if due else began)
        return Drained(len(events) / (ended - began), float(np.quantile(latency, 0.99)))


def paced(count: int, rate: float, start: float | None = None) -> list[float]:
    """Return the times of `count` events at `rate` per second from `start`; default: from now."""
    began = time.monotonic() if start is None else start
    return [began + number / rate for number in range(count)]
