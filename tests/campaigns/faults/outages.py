"""Outages of every kind in turn, under load: brokers killed and frozen, the model registry, the schema registry, model servers.

Two scorers run all the time; none may end of itself, no event may be dead-lettered, and the count must be clean.
"""

import contextlib
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scorer.demo.broker.node import free_ports
from tests.campaigns.cluster import Cluster
from tests.campaigns.faults.stage import ScorerResult
from tests.campaigns.load import Load
from tests.campaigns.watch import Watch
from tests.integration.backends import models
from tests.integration.backends.servers import KINDS as SERVERS
from tests.integration.backends.servers import ModelServer
from tests.integration.scorer.rig import Rig, ScorerProcess, until
from tests.integration.scorer.schema_registry import OneSchema

RATE = 200.0
REPLICAS = ("r0", "r1")
FROZEN_SECONDS = 4.0  # less than the session of a lone broker
LASTS_SECONDS = 3.0
PARTITIONS = 6
KINDS = ("brokers-killed", "brokers-frozen", "model-registry", "schema-registry", "model-servers")


class Outages:
    """A cluster, a model server, two registries, load, a reader, and two scorers between them."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="scorestream-outages-"))
        self.cluster = Cluster(1).start([free_ports()[0]])
        self.server: ModelServer = SERVERS["mlserver"].server(self.folder / "served").start()
        self.schemas = OneSchema({1})
        self.schemas.open()
        self.rig = self._rig()
        self.load = Load(self.rig.bootstrap_servers, self.rig.events_topic, RATE, make=self._event)
        self.watch = Watch(self.rig.bootstrap_servers, self.rig.scores_topic, self.rig.dead_topic)
        self.scorers: dict[str, ScorerProcess] = {}
        plays = self._brokers_killed, self._brokers_frozen, self._model_registry, self._schema_registry, self._model_servers
        self.kinds: dict[str, Callable[[], None]] = dict(zip(KINDS, plays, strict=True))

    def _rig(self) -> Rig:
        model = {
            "backend": SERVERS["mlserver"].backend,
            "endpoints": [self.server.address],
            "server_folder": str(self.server.folder),
            "load_seconds": 60,
        }
        schemas = {"url": self.schemas.url, "extra": {"max.retries": 0}}
        rig = Rig(
            self.cluster.bootstrap_servers,
            self.folder,
            "outages",
            model=model,
            input={"format": "avro"},
            schema_registry=schemas,
        )
        models.folder(rig.folder / "one", 2.0)
        SERVERS["mlserver"].model(rig.folder / "one", 2.0)
        rig.push(rig.folder / "one", "1.0.0")
        rig.promote("1.0.0")
        rig.create(PARTITIONS)
        return rig

    def _event(self, number: int) -> bytes:
        return self.schemas.event(max(self.schemas.ids), f"e{number}", float(number % 1_000))

    def start(self) -> None:
        for replica in REPLICAS:
            self._start(replica)
        for scorer in self.scorers.values():
            scorer.ready()
        self.watch.start()
        self.load.start()

    def _start(self, replica: str) -> None:
        cache = self.folder / f"cache-{replica}"
        shutil.rmtree(cache, ignore_errors=True)
        self.scorers[replica] = self.rig.start(replica, "--set", f"model.cache={cache}")

    def play(self, kind: str) -> float:
        """One outage; the seconds from its end until all is answered that came before, and in a second after. Fails where a
        scorer ended."""
        self.kinds[kind]()
        mended, written = time.monotonic(), self.load.events + RATE
        until(lambda: self.watch.seen >= written, "the answers")
        for scorer in self.scorers.values():
            assert scorer.process.poll() is None, scorer.said[-3_000:]
        return time.monotonic() - mended

    def count(self) -> dict[str, Any]:
        self.load.finish()
        until(lambda: self.watch.seen >= self.load.events, "all answers")
        codes = [scorer.stop() for scorer in self.scorers.values()]
        counts = self.rig.audit()
        faults = {name: counts[name] for name in ScorerResult.COUNTED} | {
            "dead": len(self.rig.dead()),
            "exits": sum(map(bool, codes)),
        }
        return {"events": counts["inputs"], **faults, "clean": not any(faults.values())}

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.watch.close()
        self.rig.close()
        self.schemas.close()
        self.server.close()
        self.cluster.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _told(self, what: str) -> None:
        """A scorer says that this is away, and all live."""
        sign = f'scorer_away{{what="{what}"}} 1.0'
        until(lambda: any(sign in scorer.get("/metrics")[1] for scorer in self.scorers.values()), f"that {what} are away")
        assert all(scorer.get("/livez")[0] == 200 for scorer in self.scorers.values())
        time.sleep(LASTS_SECONDS)

    def _brokers_killed(self) -> None:
        self.cluster.nodes[0].kill()
        self._told("brokers")
        self.cluster.whole()

    def _brokers_frozen(self) -> None:
        self.cluster.nodes[0].send(signal.SIGSTOP)
        time.sleep(FROZEN_SECONDS)
        self.cluster.nodes[0].send(signal.SIGCONT)

    def _model_registry(self) -> None:
        """With a scorer that starts meanwhile, and has nothing in its cache."""
        registry, away = self.folder / "registry", self.folder / "registry-away"
        registry.rename(away)
        self._told("model-registry")
        assert self.scorers[REPLICAS[0]].stop() == 0
        self._start(REPLICAS[0])
        waiting = self.scorers[REPLICAS[0]]
        until(lambda: "model-registry: " in waiting.get("/readyz")[1], "the wait")
        away.rename(registry)
        waiting.ready()

    def _schema_registry(self) -> None:
        """With events of a schema that nobody has seen."""
        self.schemas.close()
        self.schemas.ids.add(max(self.schemas.ids) + 1)
        self._told("schema-registry")
        self.schemas.open()

    def _model_servers(self) -> None:
        self.server.kill()
        self._told("model-servers")
        self.server.start()


def run(times: int, told: Callable[[str], None], only: str | None = None) -> dict[str, Any]:
    """So many outages of each kind in turn; what came of them. Raises AssertionError where a scorer ends or does not go on."""
    with contextlib.closing(Outages()) as stage:
        stage.start()
        took: dict[str, list[float]] = {kind: [] for kind in stage.kinds if only in (None, kind)}
        for number in range(times):
            for kind, seconds in took.items():
                seconds.append(round(stage.play(kind), 1))
                told(f"{kind} {number + 1}: all answered {seconds[-1]} s after it ended")
        return {"outages": {kind: {"times": len(s), "longest": max(s)} for kind, s in took.items()}, **stage.count()}
