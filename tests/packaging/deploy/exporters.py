"""The registries of each kind of process, with a sample of each metric."""

import logging
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import create_autospec

import trustme
from prometheus_client import CollectorRegistry

from publisher.kafka.certificate_expiry import CertificateExpiry
from publisher.kafka.skipped_records import SkippedRecords
from publisher.relay.metrics import RelayMetrics
from publisher.relay.relay_state import RelayState
from publisher.runtime.process_metrics import register_process_metrics
from publisher.transactions.counters import Counters
from scorer.observability.metrics import Metrics
from scorer.observability.rollout_metrics import RolloutMetrics, RolloutState
from scorer.settings.model import ModelSettings
from scorer.tables.tables import Tables, TableStatus

FOLDER = TemporaryDirectory()


@cache
def _certificate() -> Path:
    """Return a certificate file. It exists until the interpreter ends."""
    path = Path(FOLDER.name) / "tls.crt"
    trustme.CA().cert_pem.write_to_path(str(path))
    return path


def _tables() -> Any:
    """Return tables with a value of each metric."""
    status = TableStatus("customers", 0, 1, 100, 1, 1, 0.5, restored=True)
    tables = create_autospec(Tables, instance=True, waiting_partitions=1, lookups={"customers": Counter(row=1)})
    tables.sizes.return_value = {"customers": (1, 100)}
    tables.status.return_value = [status]
    tables.unreadable.return_value = {"customers": {"malformed": 1}}
    return tables


def exporters() -> tuple[CollectorRegistry, CollectorRegistry, CollectorRegistry]:
    """Return the metrics of a scorer, a relay and a rollout controller, with a sample of each metric."""
    skipped = SkippedRecords(logging.getLogger(__name__))
    skipped.skip("n.swaps", 0, 1, "a record of every label")
    metrics = Metrics(Counters(), ModelSettings(source="oci:registry"), skipped)
    metrics.set_input_retentions({"flights": 604_800.0})
    metrics.serving([{"model": "m", "version": "1", "digest": "sha256:a", "role": "champion"}], 1, ["cpu"])
    metrics.tables.tables = _tables()
    metrics.lag_seconds.labels("flights", "0").set(0)
    metrics.paused.labels("flights", "0").set(1)
    metrics.lag_records.labels("flights", "0").set(0)
    metrics.dead_letters.add({"malformed": 1})
    metrics.events.add({"scored": 1})
    metrics.limited.add({"empty": 1})
    metrics.canaried.labels("none").inc()
    metrics.stage.add({"infer": 1})
    relay = RelayState(2, "scores")
    relay.record_failure("retriable", OSError("away"))
    relay.retention = {"flights.scores": 604_800.0}
    relay.lanes[0].stopped = {("flights.scores", 0): "stopped"}
    relays = CollectorRegistry()
    register_process_metrics(relays, "publisher")
    relays.register(RelayMetrics(relay, "eu-west", "us-east"))
    controller = CollectorRegistry()
    register_process_metrics(controller, "scorer_rollout")
    controller.register(
        RolloutMetrics(RolloutState(is_leader=True, running=True, behind_seconds=0.0, decisions=Counter(promote=1)))
    )
    for registry, prefix, name in (
        (metrics.registry, "scorer", "kafka.security.certificate_file"),
        (relays, "publisher", "source.security.certificate_file"),
        (controller, "scorer", "kafka.security.certificate_file"),
    ):
        registry.register(CertificateExpiry(prefix, {name: _certificate()}))
    return metrics.registry, relays, controller
