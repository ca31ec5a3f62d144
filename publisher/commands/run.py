"""`publisher run`: run the relay with signal handlers, health checks and metrics.

A watchdog ends the process if a call never returns. The relay itself is in `publisher/relay`, which also decides whether to
copy again after a failure or to end.
"""

import logging
import threading

from prometheus_client import CollectorRegistry

from model_registry import stack_dump
from publisher.kafka.certificate_expiry import CertificateExpiry
from publisher.relay.metrics import RelayMetrics
from publisher.relay.relay import Relay
from publisher.relay.settings import load
from publisher.runtime import logs, watchdog
from publisher.runtime.command_line import Config, LogLevel, Set
from publisher.runtime.health import HealthServer
from publisher.runtime.log_settings import flags_with_level
from publisher.runtime.malloc_tuning import start_gc_thread
from publisher.runtime.process_metrics import register_process_metrics
from publisher.runtime.stop_signals import stop_on_signals

log = logging.getLogger(__name__)


def run(path: Config, flags: Set = None, log_level: LogLevel = None) -> None:
    """Copy topics into this region, each record exactly once, until SIGTERM."""
    logs.configure({})  # an error of the configuration is also a log line
    settings = load(path, flags_with_level(flags, log_level)).settings
    logs.configure({"publisher": settings.name}, settings.log.level, settings.log.format)
    stack_dump.print_on_signal()
    stopping = threading.Event()
    stop_on_signals(stopping.set)
    relay = Relay(settings, stopping)
    stuck_seconds = 2 * settings.destination.transaction_timeout_ms / 1_000
    registry = CollectorRegistry()
    register_process_metrics(registry, "publisher")
    registry.register(RelayMetrics(relay.state, settings.source.region, settings.destination.region))
    certificates = settings.source.security.certificate_files("source.security")
    certificates |= settings.destination.security.certificate_files("destination.security")
    registry.register(CertificateExpiry("publisher", certificates))
    health = HealthServer(settings.http.listen, registry, lambda: relay.state.not_live(stuck_seconds), relay.state.not_ready)
    log.info(
        "copying %s from %s to %s; health and metrics on http://%s",
        ", ".join(settings.source.topics),
        settings.source.region,
        settings.destination.region,
        health.address,
    )
    watchdog.watch(lambda: relay.state.not_live(2 * stuck_seconds))
    start_gc_thread()
    try:
        relay.run()
    finally:
        health.close()
    log.info("the relay has stopped; all copied records are committed")
