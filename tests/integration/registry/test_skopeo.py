"""skopeo, which shares no code with this project, moves versions between folders and a real registry, both ways."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from model_registry import package
from model_registry.channels import channel
from model_registry.oci import reference
from model_registry.stores import open_store
from model_registry.stores.remote import RemoteStore
from tests.unit.model_registry.conftest import MakePackage
from tests.unit.model_registry.stores.test_skopeo import skopeo

pytestmark = pytest.mark.debian("docker-registry", "skopeo")


def test_skopeo_copies_what_was_pushed(remote: RemoteStore, make_package: MakePackage, tmp_path: Path) -> None:
    pushed = package.push(remote, make_package(), "flight-delay", "1.0.0")
    channel.promote(remote, "prod", "1.0.0", actor="op", reason="", now=datetime.now(UTC))
    source = f"docker://{remote.repository}:prod"
    seen = json.loads(skopeo("inspect", "--tls-verify=false", source))
    assert (seen["Digest"], seen["Labels"]["org.opencontainers.image.version"]) == (pushed.digest, "1.0.0")
    assert {"1.0.0", "prod", "_h.prod.000001"} == set(seen["RepoTags"])
    skopeo("copy", "--preserve-digests", "--src-tls-verify=false", source, f"oci:{tmp_path}/mirror:1.0.0")
    mirror = open_store(reference.parse(f"oci:{tmp_path}/mirror"))
    assert mirror.resolve("1.0.0").digest == pushed.digest
    assert package.pull(mirror, pushed.digest, tmp_path / "out").model_path.read_bytes() == b"weights"


def test_what_skopeo_pushed_is_pulled(remote: RemoteStore, make_package: MakePackage, tmp_path: Path) -> None:
    folder = open_store(reference.parse(f"oci:{tmp_path}/layout"))
    pushed = package.push(folder, make_package(), "flight-delay", "1.0.0")
    target = f"docker://{remote.repository}:1.0.0"
    skopeo("copy", "--preserve-digests", "--dest-tls-verify=false", f"oci:{tmp_path}/layout:1.0.0", target)
    assert remote.resolve("1.0.0").digest == pushed.digest
    assert package.pull(remote, pushed.digest, tmp_path / "out").model_path.read_bytes() == b"weights"
    assert package.push(remote, tmp_path / "v1", "flight-delay", "1.0.0").digest == pushed.digest
