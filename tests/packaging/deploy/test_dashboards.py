"""The dashboards are those of today's code, ask only for what is exported, and explain themselves.

That Prometheus answers every expression with figures of live scorers and relays: `python -m tests seeing`.
"""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.deploy.dashboards import FILES, SOURCES, asked, panels
from tests.packaging.deploy.test_alerts import exported

SECTIONS = {
    "scoring": ["Flow", "Latency", "Lag", "Versions and swaps", "Rollout", "Tables", "Dead letters", "Transactions"],
    "regions": ["Now", "Each way", "Trouble"],
}


@pytest.fixture(scope="module")
def built() -> dict[Path, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SOURCES)
        module: Any = importlib.import_module("build")
        texts: dict[Path, str] = module.texts()
        return texts


def test_the_files_are_what_todays_code_makes(built: dict[Path, str]) -> None:
    assert set(built) == set(FILES)
    for path, text in built.items():
        assert path.read_text() == text, "make them again: python deploy/dashboards/build.py"


@pytest.mark.parametrize("name", SECTIONS)
def test_each_has_its_sections_and_every_panel_says_what_it_shows(name: str) -> None:
    found = list(panels(name))
    assert [panel["title"] for panel in found if panel["type"] == "row"] == SECTIONS[name]
    shown = [panel for panel in found if panel["type"] != "row"]
    assert all(panel["description"] and panel["targets"] and panel["fieldConfig"]["defaults"]["unit"] for panel in shown)
    assert len({panel["title"] for panel in shown}) == len(shown)
    for panel in shown:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24


def test_every_metric_that_is_asked_for_is_exported_and_every_one_that_is_exported_is_looked_at() -> None:
    seen = " ".join(query.expression for query in asked("2m"))
    names = set(re.findall(r"\b(?:scorer|publisher)_\w+", seen))
    assert len(names) > 30
    assert names - exported() == set()
    unseen = {name for name in exported() if not name.endswith(("_created", "_sum", "_count")) and name not in seen}
    unseen = {name for name in unseen if not name.startswith("process_")}  # names of the Prometheus client library
    assert unseen <= {"publisher_last_trouble_timestamp_seconds"}
