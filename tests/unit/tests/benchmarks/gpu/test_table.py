"""The table of devices in deploy/gpus.md shows the stored figures, and "unverified" for devices without figures."""

from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.gpu import table as module
from tests.benchmarks.gpu.table import PAGE, keep, kept, put, table

FIGURES: dict[str, Any] = {
    "machine": "NVIDIA X, driver 580.1",
    "date": "2026-01-02",
    "commit": "abc1234",
    "figures": [
        {"network": "bert-base", "device": "cuda", "buckets": [{"events_per_second": 10.0}, {"events_per_second": 4321.4}]},
        {"network": "tab30", "device": "cuda", "buckets": [{"events_per_second": 99.0}]},
        {"network": "tab30", "device": "tensorrt", "buckets": []},
    ],
}


def test_the_page_has_the_table_of_the_stored_figures() -> None:
    page = PAGE.read_text()
    assert put(page, kept()) == page


def test_a_device_that_was_measured_is_verified_with_machine_date_and_commit() -> None:
    cuda, tensorrt = table(FIGURES).splitlines()[3:]
    assert "*verified on NVIDIA X, driver 580.1, 2026-01-02, abc1234*: bert-base 4,321/s, tab30 99/s" in cuda
    assert "**unverified**" in tensorrt
    assert table({}).count("**unverified**") == 2
    with pytest.raises(ValueError, match="no place"):
        put("a\n", {})


BROKER: dict[str, Any] = {
    "network": "resnet-50",
    "device": "cuda",
    "share_of_directly": 0.93,
    "drained": [{"workers": 1, "events_per_second": 3000.0, "gpu_busy": 0.91}, {"workers": 2, "events_per_second": 3210.4}],
    "paced": {"p50_ms": 21.4, "p99_ms": 33.6, "swap_pause_ms": None, "gpu_mib": 4000.0, "gpu_mib_with_two_versions": 6000.0},
}


def test_rates_of_scorers_on_a_broker_are_a_separate_table() -> None:
    assert "broker" not in table(FIGURES)
    last_line = table({**FIGURES, "broker": [BROKER]}).splitlines()[-1]
    assert last_line == "| resnet-50 | `cuda` | 1: 3,000, 2: 3,210 | 0.93 | 21, 34 | - | 0.91 | 4,000, 6,000 |"


def test_parts_of_one_machine_and_commit_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(module, "PAGE", tmp_path / "page.md")
    module.PAGE.write_text(module.BEGIN + module.END)
    keep({**FIGURES, "broker": [], "faults": []})
    keep({**FIGURES, "figures": [], "broker": [BROKER], "faults": []})
    assert (kept()["figures"], kept()["broker"]) == (FIGURES["figures"], [BROKER])
    assert "resnet-50" in module.PAGE.read_text()
    keep({**FIGURES, "commit": "def5678", "figures": [], "broker": [BROKER], "faults": []})
    assert kept()["figures"] == []
