"""Versions out of a real registry: pulls, moves at once, and scoring while the registry is unavailable."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.integration.registry.server import DockerRegistry, running, tls_for
from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.integration.scorer.test_demo import demo
from tests.support import models
from tests.support.shared_broker import Broker

FLIP_SECONDS, POLL_SECONDS = 2.0, 6.0


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    with running(DockerRegistry(tmp_path_factory.mktemp("registry") / "plain")) as started:
        yield started


def stocked(make_rig: MakeRig, repository: str, flags: tuple[str, ...], **model: Any) -> Rig:
    """Two versions in a registry, the first in production, and a scorer that seldom polls."""
    rig = make_rig(model={"source": repository, "poll_seconds": POLL_SECONDS, **model})
    for version, factor in (("1.0.0", 2.0), ("2.0.0", 3.0)):
        folder = models.linear_package(rig.folder / version, factor)
        rig.run("model-registry", *flags, "push", str(folder), f"{repository}:{version}")
    rig.run("model-registry", *flags, "promote", repository, "--to", "1.0.0")
    rig.create()
    rig.run("scorer", "check", "scorer.yaml", "--set", "model.tag=2.0.0")  # tries it, which a scorer need not do again
    return rig


@pytest.mark.debian("docker-registry")
def test_a_scorer_follows_a_registry_at_once_and_continues_without_it(make_rig: MakeRig, registry: DockerRegistry) -> None:
    host = f"127.1:{registry.port}"  # as a name on a private network: no client treats it as this machine
    repository = f"{host}/team/model"
    rig = stocked(make_rig, repository, ("--plain-http-host", host), plain_http=["other:5000", host])
    scorer = rig.start().ready()
    until(lambda: [len(s["partitions"]) for s in rig.fleet()] == [4], "the partitions")
    rollout = json.loads(rig.run("scorer", "promote", "scorer.yaml", "--to", "2.0.0", "--wait", "--json").stdout)["rollout"]
    assert rollout["outcome"] == "flipped"
    assert rollout["seconds"] < FLIP_SECONDS
    registry.kill()
    rig.run("model-registry", "--plain-http-host", host, "list", repository, code=4)
    rig.emit(events(50))
    until(lambda: rig.answered() == 50, "scores without the registry")
    until(lambda: scorer.metric("scorer_away") == 1, "the notice")
    assert scorer.get("/readyz")[0] == 200
    assert scorer.stop() == 0
    second = rig.start("b").ready()
    assert "last good version" in second.said
    rig.emit(events(50, start=50))
    until(lambda: rig.answered() == 100, "scores of one that started without the registry")
    assert {record["version"] for record in rig.scores()} == {"2.0.0"}
    registry.start()
    rig.run("model-registry", "--plain-http-host", host, "promote", repository, "--to", "1.0.0")
    until(lambda: second.metric("scorer_model_revision") == 3, "the next version")


@pytest.mark.debian("docker-registry")
def test_a_registry_with_a_certificate_of_a_private_authority(make_rig: MakeRig, tmp_path: Path) -> None:
    tls = tls_for(tmp_path, "localhost")
    with running(DockerRegistry(tmp_path / "secured", tls=tls)) as registry:
        repository = f"{registry.address}/team/model"
        rig = stocked(make_rig, repository, ("--ca-file", str(tls.ca)), ca_file=str(tls.ca))
        rig.start().ready()
        rig.emit(events(10))
        until(lambda: rig.answered() == 10, "the scores")
        assert "certificate" in rig.run("model-registry", "list", repository, code=4).stderr


@pytest.mark.debian("docker-registry")
def test_the_demo_runs_on_an_existing_registry_and_broker_without_a_kill(registry: DockerRegistry, broker: Broker) -> None:
    servers = ("--bootstrap-servers", broker.bootstrap_servers, "--registry", registry.address, "--plain-http")
    completed = demo("--events", "2000", "--rate", "1000", "--no-kill", "--console", *servers, "--json")
    summary = json.loads(completed.stdout)
    assert summary["clean"]
    assert summary["kill_pause_ms"] is None
    assert "kill -9" not in completed.stderr
    assert re.search(r"Open http://127\.0\.0\.1:\d+/ in a browser", completed.stderr)
    assert "$ model-registry --plain-http push" in completed.stderr
    assert f"{registry.address}/flight-delay:2.0.0" in completed.stderr
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert not [topic for topic in admin.list_topics(timeout=10).topics if topic.startswith("demo-")]


def test_settings_that_reach_no_registry_are_named(make_rig: MakeRig) -> None:
    for setting, value, named in (("plain_http", True, "plain HTTP"), ("ca_file", "nowhere.pem", "nowhere.pem")):
        rig = make_rig(model={"source": "registry.example.com/team/model", setting: value})
        checks = json.loads(rig.run("scorer", "check", "scorer.yaml", "--create", "--json", code=1).stdout)["checks"]
        assert named in next(check["detail"] for check in checks if check["check"] == "model")
