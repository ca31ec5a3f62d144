"""A real Prometheus for one run: it scrapes the given targets, evaluates rules and answers queries."""

import json
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from scorer.demo.broker.kraft_config import free_ports
from tests.support.processes import Program
from tests.support.waiting import until

STEP_SECONDS = 240.0  # the longest wait for an effect, with a wide margin for a busy machine
Labels = dict[str, str]


class Prometheus:
    """A context manager. `rules` are groups of rules; targets are scraped and rules evaluated every half second."""

    def __init__(self, folder: Path, rules: dict[str, Any]) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._targets: dict[str, Labels] = {}
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
        settings = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [str(folder / "rules.yaml")],
            "scrape_configs": [
                {
                    "job_name": "seen",
                    "honor_labels": True,
                    "file_sd_configs": [{"files": [str(folder / "targets.json")], "refresh_interval": "1s"}],
                }
            ],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))
        self._write()
        self.address = f"127.0.0.1:{free_ports()[0]}"

    def __enter__(self) -> "Prometheus":
        files = (f"--config.file={self._folder / 'prometheus.yaml'}", f"--storage.tsdb.path={self._folder / 'data'}")
        self._program = Program(["prometheus", *files, f"--web.listen-address={self.address}"], self._folder / "log")
        until(self._answers, "Prometheus", STEP_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._program.stop()

    def scrape(self, address: str, **labels: str) -> None:
        """Scrape `address` (host:port) from now on; its series have these labels."""
        self._targets[address.removeprefix("http://")] = labels
        self._write()

    def forget(self, address: str) -> None:
        del self._targets[address.removeprefix("http://")]
        self._write()

    def ask(self, expression: str) -> list[tuple[Labels, float]]:
        results = self._get("query", query=expression)["result"]
        return [(row["metric"], float(row["value"][1])) for row in results]

    def firing(self) -> set[str]:
        return {alert["labels"]["alertname"] for alert in self._get("alerts")["alerts"] if alert["state"] == "firing"}

    def fires(self, name: str) -> None:
        until(lambda: name in self.firing(), name, STEP_SECONDS)

    def clears(self, *names: str) -> None:
        until(lambda: not set(names) & self.firing(), f"the end of {' and '.join(names)}", STEP_SECONDS)

    def _answers(self) -> bool:
        assert not self._program.ended, self._program.said
        try:
            self._get("query", query="1")
        except OSError:
            return False
        return True

    def _get(self, path: str, **values: str) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(values)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def _write(self) -> None:
        rows = [{"targets": [address], "labels": labels} for address, labels in self._targets.items()]
        new = self._folder / "targets.new"
        new.write_text(json.dumps(rows))
        new.replace(self._folder / "targets.json")
