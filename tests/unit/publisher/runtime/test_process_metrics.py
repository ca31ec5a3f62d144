"""The metrics of a process and its build."""

import platform
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from publisher.runtime.process_metrics import installed_version, register_process_metrics


def test_the_build_has_the_revision_of_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCORESTREAM_REVISION", "0123abc")
    registry = CollectorRegistry()
    register_process_metrics(registry, "relay", onnxruntime="1.24.0")
    (sample,) = (s for family in registry.collect() for s in family.samples if s.name == "relay_build_info")
    assert sample.labels.pop("librdkafka")
    assert sample.labels == {
        "version": installed_version("scorestream"),
        "revision": "0123abc",
        "python": platform.python_version(),
        "onnxruntime": "1.24.0",
    }


def test_the_process_is_the_present_one() -> None:
    registry = CollectorRegistry()
    register_process_metrics(registry, "relay")
    assert registry.get_sample_value("process_open_fds") == pytest.approx(len(list(Path("/proc/self/fd").iterdir())), abs=2)
    assert registry.get_sample_value("process_start_time_seconds") == pytest.approx(time.time(), abs=86_400)
    assert (registry.get_sample_value("process_resident_memory_bytes") or 0) > 1_000_000
    assert (registry.get_sample_value("process_cpu_seconds_total") or 0) > 0


def test_the_version_of_a_missing_distribution_is_empty() -> None:
    assert installed_version("scorestream-without-such-a-name") == ""
    assert installed_version("scorestream-without-such-a-name", "scorestream") != ""
