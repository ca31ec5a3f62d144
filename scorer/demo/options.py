"""The options of the demo, and the configuration derived from them."""

from dataclasses import dataclass
from pathlib import Path

from publisher.runtime.context import now_ms
from scorer.demo import weather
from scorer.settings import Settings, load

SESSION_TIMEOUT_MS = 6_000
FOLDER = "oci:./registry"
# the region in which events are scored, and the region to which scores are copied
NEAR = "eu-west"
FAR = "us-east"

CONFIGURATION = """\
name: {name}
kafka: {{bootstrap_servers: "{bootstrap_servers}", session_timeout_ms: {session}}}
input: {{topics: [{prefix}flights], id: flight_id}}
output: {{topic: {prefix}flights.scores}}
dead_letter: {{topic: {prefix}flights.dead}}
model: {{source: "{repository}", tag: prod, plain_http: {plain_http}, cache: ./cache}}
http: {{listen: "127.0.0.1:0"}}
region: {region}
"""
TABLES = """\
tables:
  {table}: {{topic: {prefix}{table}, key: {key}, scope: all}}
"""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of `scorer demo`."""

    events: int = 50_000
    rate: float = 2_000.0
    kill: bool = True
    keep: bool = False
    bootstrap_servers: str | None = None
    registry: str | None = None
    plain_http: bool = False
    copied: bool = False
    """Copy the scores into a second region."""
    console: bool = False
    rollouts: bool = False
    """Move the channel by rollout plans."""
    tables: bool = False
    """Join the flights with a table of the weather at their airports."""

    @property
    def registry_command(self) -> list[str]:
        """The command `model-registry` with the options for the demo's registry."""
        return ["model-registry", *(["--plain-http"] if self.plain_http else [])]

    @property
    def regions(self) -> list[str]:
        """The regions of the demo. Each region has its own broker, and events are scored in the first region."""
        return [NEAR, FAR] if self.copied else [NEAR]

    @property
    def repository(self) -> str:
        """The repository of the demo's model."""
        return f"{self.registry or FOLDER}/flight-delay"


def configure(options: DemoOptions, folder: Path, servers: str) -> Settings:
    """Write the configuration scorer.yaml and return its settings.

    On a broker of the user, the names of topics and group get a prefix.
    """
    prefix = f"demo-{now_ms()}." if options.bootstrap_servers else ""
    path = folder / "scorer.yaml"
    text = CONFIGURATION.format(
        name=f"{prefix}flight-delay",
        bootstrap_servers=servers,
        session=SESSION_TIMEOUT_MS,
        prefix=prefix,
        repository=options.repository,
        plain_http=str(options.plain_http).lower(),
        region=NEAR,
    )
    if options.tables:
        text += TABLES.format(prefix=prefix, table=weather.TABLE, key=weather.REPORT)
    path.write_text(text, encoding="utf-8")
    return load(path).settings
