"""The dashboards are the output of the current code, query only exported metrics, and have descriptions.

`python -m tests seeing` checks that Prometheus returns figures of live scorers and relays for every expression.
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


def test_the_files_are_the_output_of_the_current_code(built: dict[Path, str]) -> None:
    assert set(built) == set(FILES)
    for path, text in built.items():
        assert path.read_text() == text, "build them: python deploy/dashboards/build.py"


@pytest.mark.parametrize("name", SECTIONS)
def test_each_dashboard_has_its_sections_and_every_panel_a_description(name: str) -> None:
    all_panels = list(panels(name))
    assert [panel["title"] for panel in all_panels if panel["type"] == "row"] == SECTIONS[name]
    charts = [panel for panel in all_panels if panel["type"] != "row"]
    assert all(panel["description"] and panel["targets"] and panel["fieldConfig"]["defaults"]["unit"] for panel in charts)
    assert len({panel["title"] for panel in charts}) == len(charts)
    for panel in charts:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24


def test_every_queried_metric_is_exported_and_every_exported_metric_is_queried() -> None:
    expressions = " ".join(query.expression for query in asked("2m"))
    names = set(re.findall(r"\b(?:scorer|publisher)_\w+", expressions))
    assert len(names) > 30
    assert names - exported() == set()
    unused = {name for name in exported() if not name.endswith(("_created", "_sum", "_count")) and name not in expressions}
    unused = {name for name in unused if not name.startswith("process_")}  # names of the Prometheus client library
    assert unused <= {"publisher_last_trouble_timestamp_seconds"}
