"""The environment of the campaign: a registry with good and bad versions, a rig, load, a reader of the rollouts topic."""

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from confluent_kafka import Message
from onnx import TensorProto, helper

from tests.chaos.load import Load
from tests.chaos.rollouts.counting import Entry
from tests.chaos.supervised import Supervised
from tests.integration.scorer.rig import Rig
from tests.support import models
from tests.support.follower import Follower
from tests.support.processes import LISTENING, command

KEYS = 4_000
RULES = {"errors": 0.05, "flips": 0.05}
TWINS = ("1.0.0", "2.0.0")
"""Versions of the same model: each is a good candidate for the other."""
HALF, NOT_FINITE, RAISING = "3.0.0", "4.0.0", "5.0.0"
"""Versions with other decisions, with scores that are no numbers, and with errors for 998 of 1,000 events."""
STARTED, ASSIGNED = "worker 0 is process", "assigned: "  # words of a scorer's log
SESSION_MS = 3_000


class KeyedLoad(Load):
    """Events whose scores go from 0 to 1, of KEYS keys."""

    def __init__(self, rig: Rig, rate: float) -> None:
        super().__init__(rig.bootstrap_servers, rig.events_topic, rate, make=_event)

    def _key(self, number: int) -> bytes | None:
        return b"k%d" % (number % KEYS)


def _event(number: int) -> bytes:
    return b'{"id": "e%d", "a": %.3f, "b": 0}' % (number, number % 1_000 / 1_000)


class Ground:
    """A rig with all versions, the first of the twins promoted, and `log`, the topic of rollouts. `champion` is the current
    champion."""

    def __init__(self, bootstrap_servers: str, folder: Path, name: str, partitions: int, **settings: Any) -> None:
        folder.mkdir()
        self.rig = rig = Rig(bootstrap_servers, folder, name, kafka={"session_timeout_ms": SESSION_MS}, **settings)
        for version, factor in ((TWINS[0], 1.0), (TWINS[1], 1.0), (HALF, 0.5)):
            rig.push(models.linear_package(folder / version, factor), version)
        for version, write in ((NOT_FINITE, _not_finite), (RAISING, _raising)):
            rig.push_unchecked(models.package(folder / version, write), version)
        rig.promote(TWINS[0])
        rig.create(partitions)
        self.champion = TWINS[0]
        self.log = Log(bootstrap_servers, f"{name}.rollouts")

    @property
    def twin(self) -> str:
        """The good candidate beside the champion."""
        return TWINS[1] if self.champion == TWINS[0] else TWINS[0]

    def begin(self, candidate: str, steps: Sequence[dict[str, Any]]) -> str:
        """Start a rollout, and return its id."""
        path = self.rig.folder / "plan.yaml"
        path.write_text(yaml.safe_dump({"candidate": candidate, "steps": list(steps), "rules": RULES}))
        output = self.rig.run("scorer", "rollout", "start", str(self.rig.path), str(path), "--json").stdout
        return str(json.loads(output)["rollout"])

    def ask(self, verb: str) -> None:
        self.rig.run("scorer", "rollout", verb, str(self.rig.path), "--reason", "the campaign")

    def history(self) -> list[dict[str, Any]]:
        """The channel's moves, oldest first."""
        output = self.rig.run("model-registry", "history", f"oci:{self.rig.folder}/registry/model", "--json").stdout
        return list(json.loads(output)["moves"])

    def current(self) -> str:
        """The digest that the channel names, from the index of the registry."""
        index = json.loads((self.rig.folder / "registry" / "model" / "index.json").read_text())
        named = {(each.get("annotations") or {}).get("org.opencontainers.image.ref.name"): each for each in index["manifests"]}
        return str(named["prod"]["digest"])

    def scorer(self, replica: str, *flags: str) -> Supervised:
        arguments = [command("scorer"), "run", "scorer.yaml", "--workers", "1", "--set", f"replica={replica}", *flags]
        return Supervised(f"scorer-{replica}", self.rig.folder, arguments, {})

    def shadow(self) -> Supervised:
        return self.scorer("s", "--shadow", "--set", "shadow.listen=127.0.0.1:0")

    def controller(self, replica: str) -> Supervised:
        flags = ["--set", f"replica={replica}", "--set", "rollout.listen=127.0.0.1:0"]
        arguments = [command("scorer"), "rollout", "run", "scorer.yaml", *flags]
        return Supervised(f"controller-{replica}", self.rig.folder, arguments, {})

    def close(self) -> None:
        self.log.close()
        self.rig.close()


def scores(slot: Supervised) -> bool:
    """Whether a scorer's process has partitions."""
    return slot.running and ASSIGNED in slot.log_text().rpartition(STARTED)[2]


def listens(slot: Supervised) -> bool:
    """Whether a controller's process serves its health. Its log has one such line for each process."""
    return slot.running and slot.log_text().count(LISTENING) > len(slot.exits)


class Log:
    """The records of the topic of rollouts: `entries` by rollout, and the controllers that wrote, with the time of reading."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.entries: dict[str, list[Entry]] = {}
        self.writers: list[tuple[str, float]] = []
        """Each record of a controller: its name, and when it was read (monotonic seconds)."""
        self._follower = Follower(bootstrap_servers, topic, grows=False)

    def poll(self, seconds: float = 0.05) -> None:
        for message in self._follower.take(seconds):
            self._read(message)

    def of(self, rollout: str, kind: str) -> list[Entry]:
        return [entry for entry in self.entries.get(rollout, []) if entry.value["kind"] == kind]

    def outcome(self, rollout: str) -> str | None:
        """Return the outcome of a rollout; None while it runs."""
        return next((str(entry.value["outcome"]) for entry in self.of(rollout, "ended")), None)

    def close(self) -> None:
        self._follower.close()

    def _read(self, message: Message) -> None:
        now, raw = time.monotonic(), _bytes(message.value())
        name, _, rest = _bytes(message.key()).decode().partition("/")
        value = json.loads(raw)
        if rest == "state":
            self.writers.append((value["controller"], now))
        elif rest.isdigit():
            self.entries.setdefault(name, []).append(Entry(value, f"sha256:{hashlib.sha256(raw).hexdigest()}", now))
            if value["kind"] != "started":
                self.writers.append((value["by"], now))


def _bytes(text: str | bytes | None) -> bytes:
    return text.encode() if isinstance(text, str) else text or b""


def _not_finite(path: Path) -> None:
    models.linear(path, float("nan"))


def _raising(path: Path) -> None:
    """y = the number of x at the place 1,000 a, of two places."""
    nodes = [
        models.gather("a", "i"),
        helper.make_node("Mul", ["a", "thousand"], ["far"]),
        helper.make_node("Cast", ["far"], ["place"], to=TensorProto.INT64),
        helper.make_node("GatherElements", ["x", "place"], ["y"], axis=1),
    ]
    constants = [models.constant("i", [0], np.int64), models.constant("thousand", [1_000.0])]
    models.save(nodes, [models.X], [models.Y], path, constants)
