"""Container images as versions in a real registry: made on a base that another tool brought, in Docker's form as well."""

import subprocess
from pathlib import Path

import pytest

from model_registry import image_build, manifest, package, versions
from model_registry.cache import Cache
from model_registry.image_build import Base
from model_registry.stores.layout import LayoutStore
from model_registry.stores.remote import RemoteStore
from tests.unit.registry.conftest import MakePackage

pytestmark = pytest.mark.debian("docker-registry", "skopeo")


def copy(*arguments: str) -> None:
    subprocess.run(["skopeo", "copy", *arguments], check=True, capture_output=True)


def test_an_image_on_a_base_in_the_registry_is_pulled(remote: RemoteStore, make_package: MakePackage, tmp_path: Path) -> None:
    base = package.push(remote, make_package("base"), "base", "base", base=Base())
    pushed = package.push(
        remote, make_package("v1", model=b"w" * 3_000_000), "m", "1.0.0", base=image_build.open_base(remote, base.digest)
    )
    copy("--src-tls-verify=false", "--preserve-digests", f"docker://{remote.repository}:1.0.0", f"oci:{tmp_path}/mirror:1.0.0")
    assert LayoutStore(tmp_path / "mirror").resolve("1.0.0").digest == pushed.digest
    found = Cache(tmp_path / "cache").fetch(remote, pushed.digest)
    assert (found.version, found.model_path.read_bytes()) == ("1.0.0", b"w" * 3_000_000)


def test_an_image_in_dockers_form_is_pulled(remote: RemoteStore, make_package: MakePackage, tmp_path: Path) -> None:
    store = LayoutStore(tmp_path / "layout")
    package.push(store, make_package(), "m", "1.0.0", base=Base())
    target = f"docker://{remote.repository}:docker"
    copy("--dest-tls-verify=false", "--format", "v2s2", f"{store.repository}:1.0.0", target)
    found = remote.resolve("docker")
    assert found.media_type == manifest.DOCKER_MANIFEST_TYPE
    assert package.pull(remote, found.digest, tmp_path / "out", version="docker").model_path.read_bytes() == b"weights"
    described = versions.describe(remote, found.digest, version="docker")
    assert (described.name, described.version) == (remote.repository.rpartition("/")[2], "docker")
