"""The dashboards' expressions in a form that Prometheus can evaluate, from the files that Grafana imports."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.support.environment import ROOT

FOLDER = ROOT / "deploy" / "chart" / "files" / "dashboards"
FILES = tuple(sorted(FOLDER.glob("*.json")))
SOURCES = ROOT / "deploy" / "dashboards"


class Query(NamedTuple):
    dashboard: str
    panel: str
    expression: str


def asked(interval: str) -> list[Query]:
    """Return every query, over all namespaces and services, with rates over `interval`, for example `2m`."""
    queries = []
    for path in FILES:
        for panel in panels(path.stem):
            for target in panel.get("targets", ()):
                expression = (
                    target["expr"].replace("$__rate_interval", interval).replace("$namespace", ".*").replace("$service", ".*")
                )
                queries.append(Query(path.stem, panel["title"], expression))
    return queries


def panels(name: str) -> Iterator[dict[str, Any]]:
    for panel in json.loads((FOLDER / f"{name}.json").read_text())["panels"]:
        yield panel
        yield from panel.get("panels", ())
