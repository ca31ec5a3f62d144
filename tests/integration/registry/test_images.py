"""Container images as versions in a real registry: made on a base that another tool brought, in Docker's form as well."""

from collections.abc import Callable
from pathlib import Path

import pytest

from model_registry import package
from model_registry.cache import Cache
from model_registry.container_image import build
from model_registry.container_image.build import BaseImage
from model_registry.errors import RegistryError
from model_registry.oci import digests, manifest
from model_registry.signing import signatures
from model_registry.signing.admission import admission
from model_registry.stores import resolve_index
from model_registry.stores.oci_layout import LayoutStore
from model_registry.stores.oci_registry import RemoteStore
from tests.integration.registry.conftest import away
from tests.unit.model_registry.conftest import MakePackage
from tests.unit.model_registry.keyring import NOW, ONE
from tests.unit.model_registry.stores.test_skopeo import skopeo

pytestmark = pytest.mark.debian("docker-registry", "skopeo")


def test_an_image_on_a_base_in_the_registry_is_pulled(remote: RemoteStore, make_package: MakePackage, tmp_path: Path) -> None:
    base = package.push(remote, make_package("base"), "base", "base", base=BaseImage())
    pushed = package.push(
        remote, make_package("v1", model=b"w" * 3_000_000), "m", "1.0.0", base=build.open_base(remote, base.digest)
    )
    skopeo(
        "copy",
        "--src-tls-verify=false",
        "--preserve-digests",
        f"docker://{remote.repository}:1.0.0",
        f"oci:{tmp_path}/mirror:1.0.0",
    )
    assert LayoutStore(tmp_path / "mirror").resolve("1.0.0").digest == pushed.digest
    fetched = Cache(tmp_path / "cache").fetch(remote, pushed.digest)
    assert (fetched.version, fetched.model_path.read_bytes()) == ("1.0.0", b"w" * 3_000_000)


def test_an_image_in_dockers_form_is_pulled(remote: RemoteStore, make_package: MakePackage, tmp_path: Path) -> None:
    store = LayoutStore(tmp_path / "layout")
    package.push(store, make_package(), "m", "1.0.0", base=BaseImage())
    target = f"docker://{remote.repository}:docker"
    skopeo("copy", "--dest-tls-verify=false", "--format", "v2s2", f"{store.repository}:1.0.0", target)
    resolved = remote.resolve("docker")
    assert resolved.media_type == manifest.DOCKER_MANIFEST_TYPE
    assert package.pull(remote, resolved.digest, tmp_path / "out", version="docker").model_path.read_bytes() == b"weights"
    described = resolve_index.describe_version(remote, resolved.digest, version="docker")
    assert (described.name, described.version) == (remote.repository.rpartition("/")[2], "docker")


def rewrite(entry: Path, old: bytes, new: bytes) -> None:
    """Swap a file's content (of the same size), and its digest wherever one stands beside it."""
    for path in [path for path in entry.rglob("*") if path.is_file()]:
        content = path.read_bytes().replace(digests.from_bytes(old).encode(), digests.from_bytes(new).encode())
        path.write_bytes(new if content == old else content)


def drop_layers(entry: Path, old: bytes, new: bytes) -> None:
    """The same, and nothing is left to hold the file against but the manifest."""
    rewrite(entry, old, new)
    for path in entry.glob("blobs/sha256/*"):
        if path.name != entry.name:
            path.unlink()


@pytest.mark.parametrize("swap", [rewrite, drop_layers])
def test_a_signed_image_cannot_be_swapped_in_a_shared_cache(
    remote: RemoteStore, make_package: MakePackage, tmp_path: Path, swap: Callable[[Path, bytes, bytes], None]
) -> None:
    """A writer of the cache has no key: the model is fetched again, or refused if the registry is unavailable."""
    (tmp_path / "one.pub").write_bytes(ONE.public().pem())
    (tmp_path / "policy.yaml").write_text("signatures: required\nkeys: [{id: release, file: one.pub}]\n")
    root, weights, other_weights = tmp_path / "cache", b"good" * 1000, b"evil" * 1000
    digest = package.push(remote, make_package(model=weights), "m", "1.0.0", base=BaseImage()).digest
    signatures.sign(remote, digest, ONE, NOW)
    admitted, cache = admission(tmp_path / "policy.yaml", root), Cache(root)
    unreachable = away(remote)
    cache.fetch(remote, digest)
    for store in (remote, unreachable):
        assert admitted.check(store, digest, "1.0.0", NOW) == "release"
        assert cache.fetch(store, digest).model_path.read_bytes() == weights
    swap(root / "versions" / digests.hex_digits(digest), weights, other_weights)
    assert admitted.check(unreachable, digest, "1.0.0", NOW) == "release"
    with pytest.raises(RegistryError):
        cache.fetch(unreachable, digest)
    assert cache.fetch(remote, digest).model_path.read_bytes() == weights
    assert cache.fetch(unreachable, digest).annotations["org.opencontainers.image.version"] == "1.0.0"
