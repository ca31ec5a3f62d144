"""Metrics that every service exports: its build, and the CPU time, memory and open files of its process.

The names of the process metrics are those of the Prometheus client libraries, such as `process_resident_memory_bytes`. Each
worker of `scorer run` is a process with an HTTP server of its own, so its metrics describe this worker only.
"""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector

from publisher.kafka.clients import librdkafka_version

REVISION = "SCORESTREAM_REVISION"
"""The environment variable with the commit of the build. The container image sets it."""


def register_process_metrics(registry: CollectorRegistry, prefix: str, **libraries: str) -> None:
    """Register the metrics of this process, and the metric `<prefix>_build_info`.

    Args:
        registry: the registry.
        prefix: the prefix of the service's metrics.
        libraries: the versions of further libraries by name, which become labels; "" for a library that is not installed.
    """
    labels = {
        "version": installed_version("scorestream"),
        "revision": os.environ.get(REVISION, ""),
        "python": platform.python_version(),
        "librdkafka": librdkafka_version(),
        **libraries,
    }
    documentation = "The version of the product, its revision if known, and the versions of its libraries."
    Gauge(f"{prefix}_build_info", documentation, labels, registry=registry).labels(**labels).set(1)
    ProcessCollector(registry=registry)


def installed_version(*distributions: str) -> str:
    """Return the version of the first of these distributions that is installed; "" if none is."""
    for distribution in distributions:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return ""
