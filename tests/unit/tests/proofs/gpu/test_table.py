"""The table of devices in deploy/backends.md is what the kept figures say, and says unverified where there are none."""

from typing import Any

import pytest

from tests.proofs.gpu.table import PAGE, kept, put, table

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


def test_the_page_has_the_table_of_what_was_kept() -> None:
    page = PAGE.read_text()
    assert put(page, kept()) == page


def test_a_device_that_was_measured_is_verified_with_machine_date_and_commit() -> None:
    cuda, tensorrt = table(FIGURES).splitlines()[3:]
    assert "*verified on NVIDIA X, driver 580.1, 2026-01-02, abc1234*: bert-base 4,321/s, tab30 99/s" in cuda
    assert "**unverified**" in tensorrt
    assert table({}).count("**unverified**") == 2
    with pytest.raises(ValueError, match="no place"):
        put("a\n", {})
