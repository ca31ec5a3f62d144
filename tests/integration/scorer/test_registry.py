"""Versions out of a real registry: pulled, followed, swapped when told, and going on when the registry is gone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from scorer.demo.broker.embedded import EmbeddedBroker
from tests.integration.registry.server import DockerRegistry, Tls, running
from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.integration.scorer.test_demo import demo
from tests.support import models

TOLD_SECONDS = 2.0


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    """Plain HTTP."""
    with running(DockerRegistry(tmp_path_factory.mktemp("registry") / "plain")) as started:
        yield started


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """A certificate for localhost of an authority that nobody knows."""
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    issued = authority.issue_cert("localhost")
    found = Tls(folder / "server.pem", folder / "server.key", folder / "ca.pem")
    issued.private_key_pem.write_to_path(found.key)
    for number, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(found.certificate, append=number > 0)
    authority.cert_pem.write_to_path(found.ca)
    return found


def stocked(make_rig: MakeRig, repository: str, flags: tuple[str, ...], **model: Any) -> Rig:
    """Two versions in a registry, the first in production, and a scorer that polls hardly ever."""
    rig = make_rig(model={"source": repository, "poll_seconds": 600, **model})
    for version, factor in (("1.0.0", 2.0), ("2.0.0", 3.0)):
        folder = models.linear_package(rig.folder / version, factor)
        rig.run("model-registry", *flags, "push", str(folder), f"{repository}:{version}")
    rig.run("model-registry", *flags, "promote", repository, "--to", "1.0.0")
    rig.create()
    return rig


@pytest.mark.debian("docker-registry")
def test_a_scorer_follows_a_registry_when_told_and_goes_on_without_it(make_rig: MakeRig, registry: DockerRegistry) -> None:
    host = f"127.1:{registry.port}"  # as a name on a network of one's own: nobody knows it for this machine's
    repository = f"{host}/team/model"
    rig = stocked(make_rig, repository, ("--plain-http-host", host), plain_http=["other:5000", host])
    scorer = rig.start().ready()
    until(lambda: [len(s["partitions"]) for s in rig.fleet()] == [4], "the partitions")
    rollout = json.loads(rig.run("scorer", "promote", "scorer.yaml", "--to", "2.0.0", "--wait", "--json").stdout)["rollout"]
    assert rollout["outcome"] == "flipped"
    assert rollout["seconds"] < TOLD_SECONDS
    registry.kill()
    rig.run("model-registry", "--plain-http-host", host, "list", repository, code=4)
    rig.emit(events(50))
    until(lambda: rig.answered() == 50, "scores without the registry")
    assert scorer.stop() == 0
    rig.start("b").ready()
    rig.emit(events(50, start=50))
    until(lambda: rig.answered() == 100, "scores of one that started without the registry")
    assert {record["version"] for record in rig.scores()} == {"2.0.0"}
    registry.start()


@pytest.mark.debian("docker-registry")
def test_a_registry_with_a_certificate_of_its_own_authority(make_rig: MakeRig, tls: Tls, tmp_path: Path) -> None:
    with running(DockerRegistry(tmp_path / "secured", tls=tls)) as registry:
        repository = f"{registry.address}/team/model"
        rig = stocked(make_rig, repository, ("--ca-file", str(tls.ca)), ca_file=str(tls.ca))
        rig.start().ready()
        rig.emit(events(10))
        until(lambda: rig.answered() == 10, "the scores")
        assert "certificate" in rig.run("model-registry", "list", repository, code=4).stderr


@pytest.mark.debian("docker-registry")
def test_the_demo_runs_against_a_registry(registry: DockerRegistry, broker: EmbeddedBroker) -> None:
    flags = ("--events", "1000", "--rate", "1000", "--no-kill", "--registry", registry.address, "--plain-http")
    done = demo(*flags, "--bootstrap-servers", broker.bootstrap_servers, "--json")
    assert json.loads(done.stdout)["clean"]
    assert "$ model-registry --plain-http push" in done.stderr
    assert f"{registry.address}/flight-delay:2.0.0" in done.stderr


@pytest.mark.parametrize(("setting", "value"), [("plain_http", True), ("ca_file", "nowhere.pem")])
def test_what_no_registry_can_be_reached_with_is_named(make_rig: MakeRig, setting: str, value: object) -> None:
    rig = make_rig(model={"source": "registry.example.com/team/model", setting: value})
    checks = json.loads(rig.run("scorer", "check", "scorer.yaml", "--create", "--json", code=1).stdout)["checks"]
    said = next(check["detail"] for check in checks if check["check"] == "model")
    assert ("plain HTTP" if setting == "plain_http" else "nowhere.pem") in said
