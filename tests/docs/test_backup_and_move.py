"""The commands of the page on backups and moves of a registry, on real registries and a real broker."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.test_readme import README, REGISTRY, Reader
from tests.integration.registry.server import DockerRegistry, running, tls_for
from tests.support.environment import ROOT
from tests.support.shared_broker import Broker

PAGE = "model_registry/docs/backup-and-move.md"
NEW_REGISTRY = "registry.example.org"

pytestmark = pytest.mark.debian("docker-registry")


@pytest.fixture
def registries(tmp_path: Path) -> Iterator[list[DockerRegistry]]:
    """Three registries with one certificate, whose authority is `tls/ca.pem`."""
    folder = tmp_path / "tls"
    folder.mkdir()
    tls = tls_for(folder, "localhost")
    with ExitStack() as stack:
        yield [stack.enter_context(running(DockerRegistry(tmp_path / f"data-{name}", tls=tls))) for name in "abc"]


@pytest.fixture
def reader(tmp_path: Path, broker: Broker, unique: str, registries: list[DockerRegistry]) -> Iterator[Reader]:
    """A reader with the first registry, whose channel is at revision 3, and a configuration that names it."""
    old, new, _ = registries
    newcomer = Reader(tmp_path, broker.bootstrap_servers, unique)
    newcomer.environment["SSL_CERT_FILE"] = str(tmp_path / "tls" / "ca.pem")
    newcomer.exchange(REGISTRY, old.address)
    newcomer.exchange(NEW_REGISTRY, new.address)
    source = f"{old.address}/team/{unique}"
    configuration = newcomer.ours(pages.blocks(README)["configuration"])
    (tmp_path / "scorer.yaml").write_text(configuration.replace("oci:./registry/flight-delay", source))
    for version in ("1.0.0", "2.0.0"):
        newcomer.forked(f"model-registry push scorer/demo/data/flight-delay-{version} {source}:{version}")
    for version in ("1.0.0", "2.0.0", "1.0.0"):
        newcomer.forked(f"model-registry promote {source} --to {version}")
    newcomer.forked("scorer check scorer.yaml --create")
    yield newcomer
    newcomer.close()


def run(reader: Reader, block: str) -> list[str]:
    return [reader.shell(line) for line in pages.lines(PAGE, block)]


def test_a_backup_is_restored_into_an_empty_registry(reader: Reader, registries: list[DockerRegistry]) -> None:
    planned, saved = run(reader, "backup")
    assert "would be copied: 2 versions" in planned
    assert "copied: 2 versions" in saved
    reader.exchange(REGISTRY, registries[2].address)
    restored, status = run(reader, "restore")
    assert "prod -> 1.0.0" in restored
    assert "1.0.0" in status
    shown = json.loads(reader.shell(f"model-registry status {REGISTRY}/team/flight-delay --json"))
    assert [(channel["channel"], channel["revision"]) for channel in shown["channels"]] == [("prod", 3)]


def test_a_registry_is_moved_with_the_pages_commands(reader: Reader) -> None:
    assert "copied: 2 versions" in run(reader, "copy")[0]
    reader.shell(f"model-registry promote {REGISTRY}/team/flight-delay --to 2.0.0")
    copied, status, history = run(reader, "again")
    assert "prod -> 2.0.0" in copied
    assert "copied: 0 versions, 0 signatures and attestations, 1 history entries, 1 channels" in copied
    assert "4" in status
    assert history == reader.shell(f"model-registry history {REGISTRY}/team/flight-delay --channel prod")
    run(reader, "switch")
    assert reader.ours(f"{NEW_REGISTRY}/team/flight-delay") in (reader.folder / "scorer.yaml").read_text()


def test_the_messages_of_the_table_are_those_of_the_code() -> None:
    sources = [*(ROOT / "model_registry").rglob("*.py")]
    code = "".join(path.read_text() for path in sources)
    table = (ROOT / PAGE).read_text().partition("## If something is refused")[2].partition("\n## ")[0]
    messages = [row.split("`")[1] for row in table.splitlines() if row.startswith("| `")]
    assert len(messages) == 7
    for message in messages:
        fixed_part = "version {tag} has the digest {target.digest} in" if message.startswith("version ...") else message
        assert fixed_part in code
