"""`scorer bench` of versions with joined fields."""

from pathlib import Path

import pytest

from scorer.commands.bench import measure, settings_for
from tests.support import models


@pytest.mark.parametrize("golden", [True, False])
def test_joined_fields_have_the_values_of_the_first_golden_example(tmp_path: Path, *, golden: bool) -> None:
    folder = models.joined_package(tmp_path / "joined-1.0", 2.0)
    if not golden:
        (folder / "golden.jsonl").unlink()
    settings, package = settings_for(str(folder), None, ["batching.max_events=4"])
    report = measure(settings, package)
    assert [cost.size for cost in report.points] == [1, 2, 4]
    assert report.events_per_second > 0
