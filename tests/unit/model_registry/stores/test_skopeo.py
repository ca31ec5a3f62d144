"""skopeo, which shares no code with this project, reads and copies pushed versions."""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from model_registry import package
from model_registry.channels import channel
from model_registry.channels.move_request import MoveRequest
from model_registry.container_image.build import BaseImage
from model_registry.oci import reference
from model_registry.stores.oci_layout import LayoutStore
from model_registry.stores.open import open_store
from tests.unit.model_registry.conftest import MakePackage

pytestmark = pytest.mark.debian("skopeo")


def skopeo(*arguments: str) -> str:
    return subprocess.run(["skopeo", *arguments], capture_output=True, text=True, check=True).stdout


def test_skopeo_inspects_a_version_and_a_channel(store: LayoutStore, make_package: MakePackage) -> None:
    pushed = package.push(store, make_package(), "flight-delay", "1.0.0")
    channel.promote(store, "prod", "1.0.0", MoveRequest("op", "", datetime.now(UTC)))
    for tag in ("1.0.0", "prod"):
        inspected = json.loads(skopeo("inspect", f"{store.repository}:{tag}"))
        assert inspected["Digest"] == pushed.digest
        assert inspected["Labels"]["org.opencontainers.image.version"] == "1.0.0"
        assert len(inspected["Layers"]) == 4
        assert skopeo("inspect", "--raw", f"{store.repository}:{tag}").encode() == store.manifest(pushed.digest)


def test_a_copy_by_skopeo_is_the_same_version_and_continues_the_history(
    store: LayoutStore, make_package: MakePackage, tmp_path: Path
) -> None:
    pushed = package.push(store, make_package(), "flight-delay", "1.0.0")
    (tmp_path / "mirror").mkdir()
    skopeo("copy", "--preserve-digests", f"{store.repository}:1.0.0", f"oci:{tmp_path}/mirror/flight-delay:1.0.0")
    mirror = open_store(reference.parse(f"oci:{tmp_path}/mirror/flight-delay"))
    assert mirror.resolve("1.0.0").digest == pushed.digest
    assert package.pull(mirror, pushed.digest, tmp_path / "out").model_path.read_bytes() == b"weights"
    package.push(mirror, make_package("v2", model=b"two"), "flight-delay", "2.0.0")
    assert mirror.tags() == ["1.0.0", "2.0.0"]
    assert json.loads(skopeo("inspect", f"{mirror.repository}:2.0.0"))["Labels"]["org.opencontainers.image.version"] == "2.0.0"


def test_an_image_is_read_and_copied(store: LayoutStore, make_package: MakePackage, tmp_path: Path) -> None:
    package.push(store, make_package(), "flight-delay", "1.0.0", base=BaseImage())
    (tmp_path / "docker").mkdir()
    skopeo("copy", f"{store.repository}:1.0.0", f"dir:{tmp_path}/docker", "--format", "v2s2")
    skopeo("copy", f"dir:{tmp_path}/docker", f"oci:{tmp_path}/mirror:1.0.0")
    inspected = json.loads(skopeo("inspect", f"oci:{tmp_path}/mirror:1.0.0"))
    assert (inspected["Architecture"], inspected["Labels"]["org.opencontainers.image.version"]) == ("amd64", "1.0.0")
    mirror = LayoutStore(tmp_path / "mirror")
    assert package.pull(mirror, inspected["Digest"], tmp_path / "out").model_path.name == "model.onnx"
