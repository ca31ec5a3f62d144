"""Packages in container images: a pull gives the files of a container under /models, and hostile layers are refused."""

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from model_registry import package
from model_registry.cache import Cache
from model_registry.container_image import build
from model_registry.container_image.build import BaseImage
from model_registry.errors import Corrupt, Refused
from model_registry.oci import digests, manifest
from model_registry.stores import resolve_index
from model_registry.stores.oci_layout import LayoutStore
from tests.conformance.store import put
from tests.unit.model_registry.conftest import GOLDEN, SIGNATURE, MakePackage, onnx_bytes

OCI = "application/vnd.oci.image.layer.v1.tar"
DOCKER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
PACKAGE = {"models/model.onnx": b"weights", "models/signature.json": SIGNATURE.encode(), "models/golden.jsonl": GOLDEN.encode()}
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    OCI: bytes,
    f"{OCI}+gzip": gzip.compress,
    f"{OCI}+zstd": zstandard.compress,
    DOCKER: gzip.compress,
}
Entry = tuple[str, bytes | str | None]
"""A path and its content: bytes, the target of a link, or None for a folder."""


def layer(*entries: Entry, fmt: int = tarfile.PAX_FORMAT) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=fmt) as archive:
        for path, content in entries:
            entry = tarfile.TarInfo(path)
            if content is None:
                entry.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
            else:
                entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else None)
    return data.getvalue()


def push_image(store: LayoutStore, layers: Sequence[bytes], kind: str = OCI, **changes: Any) -> str:
    """Push an image as another tool would build it, and return its digest."""
    pack = PACKERS[kind]
    config = put(
        store,
        json.dumps(
            {"rootfs": {"type": "layers", "diff_ids": [digests.from_bytes(layer_bytes) for layer_bytes in layers]}}
        ).encode(),
    )
    document: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": manifest.DOCKER_MANIFEST_TYPE if kind == DOCKER else manifest.MANIFEST_TYPE,
        "config": {
            "mediaType": manifest.DOCKER_CONFIG_TYPE if kind == DOCKER else manifest.IMAGE_CONFIG_TYPE,
            "digest": config.digest,
            "size": config.size,
        },
        "layers": [],
    } | changes
    for layer_bytes in layers:
        blob = put(store, pack(layer_bytes))
        document["layers"].append({"mediaType": kind, "digest": blob.digest, "size": blob.size})
    return put(store, json.dumps(document).encode()).digest


def pulled(store: LayoutStore, digest: str, folder: Path) -> dict[str, bytes]:
    package.pull(store, digest, folder)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def flat(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path.removeprefix("models/"): content for path, content in files.items()}


@pytest.mark.parametrize("kind", [OCI, f"{OCI}+gzip", f"{OCI}+zstd", DOCKER])
def test_every_kind_of_layer_is_read(store: LayoutStore, tmp_path: Path, kind: str) -> None:
    digest = push_image(store, [layer(("etc/passwd", b"root"), ("bin/sh", "busybox")), layer(*PACKAGE.items())], kind)
    assert pulled(store, digest, tmp_path / "out") == flat(PACKAGE)
    fetched = package.read(tmp_path / "out")
    assert fetched.signature is not None
    described = resolve_index.describe_version(store, digest, version="1.0.0")
    assert (described.name, described.version) == ("flight-delay", "1.0.0")


def test_the_package_may_be_in_a_subfolder(store: LayoutStore, tmp_path: Path) -> None:
    files = {path.replace("models/", "models/flight-delay/"): content for path, content in PACKAGE.items()}
    digest = push_image(store, [layer(("models/other/model.onnx", b"x"), *files.items())])
    assert pulled(store, digest, tmp_path / "out") == flat(PACKAGE)
    digest = push_image(store, [layer(("models/a/model.onnx", b"a"))])
    assert pulled(store, digest, tmp_path / "one") == {"model.onnx": b"a"}


def test_whiteouts_hide_files_of_lower_layers(store: LayoutStore, tmp_path: Path) -> None:
    old, link, hidden = ("models/old", b"a file now"), ("models/link", "/etc"), ("models/.wh.golden.jsonl", b"")
    lower = layer(*PACKAGE.items(), ("models/old/a", b"1"), ("models/old/b", b"2"), ("models/data/x", b"x"), link)
    middle = layer(hidden, ("models/data/y", b"y"), ("models/data/.wh..wh..opq", b""), ("models/.wh.link", b""))
    upper = layer(("models/.wh.old", b""), old, ("./models/model.onnx", b"newer"), ("models/.wh..wh.aufs", b""))
    files = pulled(store, push_image(store, [lower, middle, upper]), tmp_path / "out")
    assert files == {"model.onnx": b"newer", "signature.json": SIGNATURE.encode(), "data/y": b"y", "old": b"a file now"}
    all_deleted = [layer(*PACKAGE.items()), layer((".wh.models", b""))]
    with pytest.raises(Refused, match=r"no /models/model\.onnx"):
        pulled(store, push_image(store, all_deleted), tmp_path / "deleted")
    assert not (tmp_path / "deleted").exists()


def test_an_image_of_too_many_entries_is_refused_before_files_are_synced(
    store: LayoutStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)  # on a disk of 2 ms each, the calls for 10,000 files take 20 s
    digest = push_image(store, [layer(*((f"models/{n}", b"x") for n in range(10_001)))], f"{OCI}+gzip")
    synced.clear()
    with pytest.raises(Corrupt, match="more than 10000 entries under /models"):
        Cache(tmp_path / "cache").fetch(store, digest)
    assert len(synced) < 10
    assert not list((tmp_path / "cache").rglob("[0-9]"))


M: Entry = ("models/model.onnx", b"m")


@pytest.mark.parametrize(
    ("layers", "error", "message"),
    [
        ([layer(M, ("models/../../hostile", b""))], Corrupt, r"\.\./hostile"),
        ([layer(M, ("../models/x", b""))], Corrupt, r"\.\./models/x"),
        ([layer(M, ("/models/x", b""))], Corrupt, "'/models/x'"),
        ([layer(M, ("models/a\\b", b""))], Corrupt, "leads out"),
        ([layer(M, ("models/a:b", b""))], Corrupt, "leads out"),
        ([layer(M, ("models/README", b""), ("models/readme", b""))], Corrupt, "cannot exist beside"),
        ([layer(M, ("models/a", b"1"), ("models/a", b"2"))], Corrupt, "occurs twice"),
        ([layer(M, ("models/a", "/etc"), ("models/a/passwd", b"x"))], Corrupt, "leads through"),
        ([layer(M, ("models/a", "/etc/passwd"))], Refused, "models/a in the image is a link"),
        ([layer(M, ("models/a", "model.onnx"))], Refused, "models/a in the image is a link"),
        ([layer(("models", "/opt/models"), ("opt/models/model.onnx", b"m"))], Refused, "/models is a link"),
        ([layer(("models/a/model.onnx", b""), ("models/b/model.onnx", b""))], Refused, "models are in models/a, models/b"),
        ([layer(M, ("models/signature.json", b"{"))], Refused, "is not JSON"),
        ([layer(M)[:600]], Corrupt, "cut short"),
    ],
)
def test_a_forbidden_entry_is_refused(
    store: LayoutStore, tmp_path: Path, layers: list[bytes], error: type[Exception], message: str
) -> None:
    digest = push_image(store, layers)
    with pytest.raises(error, match=message):
        package.pull(store, digest, tmp_path / "in" / "out")
    assert list((tmp_path / "in").iterdir()) == []


@pytest.mark.parametrize(
    ("path", "count", "message"),
    [("models/{}", manifest.MAX_FILES, "1001 files"), ("models/.wh.{}", 10_000, "more than 10000 entries")],
)
def test_a_layer_of_too_many_entries_is_refused(
    store: LayoutStore, tmp_path: Path, path: str, count: int, message: str
) -> None:
    digest = push_image(store, [layer(M, *((path.format(number), b"") for number in range(count)))])
    with pytest.raises(Corrupt, match=message):
        package.pull(store, digest, tmp_path / "in" / "out")
    assert list((tmp_path / "in").iterdir()) == []


def test_a_damaged_or_external_layer_leaves_no_files(store: LayoutStore, tmp_path: Path) -> None:
    digest = push_image(store, [layer(*PACKAGE.items())])
    blob = manifest.parse_version(store.manifest(digest)).layers[0]
    path = store._blob_path(blob.digest)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(Corrupt, match=blob.digest):
        package.pull(store, digest, tmp_path / "out")
    foreign = store.manifest(digest).replace(OCI.encode(), b"application/vnd.oci.image.layer.nondistributable.v1.tar")
    with pytest.raises(Corrupt, match="nondistributable"):
        package.pull(store, put(store, foreign).digest, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_content_above_a_limit_is_refused_before_it_is_written(store: LayoutStore, tmp_path: Path) -> None:
    digest = push_image(store, [layer(("models/model.onnx", b"m" * 10_000))], f"{OCI}+gzip")
    with pytest.raises(Refused, match="files under /models"):
        Cache(tmp_path / "cache", max_version_bytes=9_999).fetch(store, digest)
    assert Cache(tmp_path / "cache", max_version_bytes=10_000).fetch(store, digest).model_path.stat().st_size == 10_000


def entry(store: LayoutStore, digest: str, **more: Any) -> dict[str, Any]:
    return {"mediaType": manifest.MANIFEST_TYPE, "digest": digest, "size": len(store.manifest(digest))} | more


@pytest.mark.parametrize("kind", [manifest.INDEX_TYPE, manifest.DOCKER_INDEX_TYPE])
def test_the_matching_manifest_of_an_index_is_selected(store: LayoutStore, tmp_path: Path, kind: str) -> None:
    any_, amd, arm = (push_image(store, [layer(("models/model.onnx", name))]) for name in (b"any", b"amd", b"arm"))
    amd64 = entry(store, amd, platform={"os": "linux", "architecture": "amd64"})
    arm64 = entry(store, arm, platform={"os": "linux", "architecture": "arm64", "variant": "v8"})
    proof = entry(
        store,
        arm,
        platform={"os": "unknown", "architecture": "unknown"},
        annotations={"vnd.docker.reference.type": "attestation-manifest"},
    )

    def index(*entries: dict[str, Any]) -> str:
        return put(store, json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": entries}).encode()).digest

    assert pulled(store, index(proof, arm64, amd64), tmp_path / "1") == {"model.onnx": b"amd"}
    assert pulled(store, index(amd64, entry(store, any_)), tmp_path / "2") == {"model.onnx": b"any"}
    assert pulled(store, index(proof, arm64), tmp_path / "3") == {"model.onnx": b"arm"}
    elsewhere = index(arm64, entry(store, arm, platform={"os": "linux", "architecture": "s390x"}))
    with pytest.raises(Refused, match="its platforms: linux/arm64, linux/s390x"):
        package.pull(store, elsewhere, tmp_path / "4")
    index_digest = index(proof, amd64)
    cache = Cache(tmp_path / "cache")
    fetched = cache.fetch(store, index_digest, version="1.0.0")
    assert (fetched.digest, fetched.version) == (index_digest, "1.0.0")
    (store._path / "index.json").unlink()
    assert cache.fetch(store, index_digest).model_path.read_bytes() == b"amd"


def test_a_plain_artifact_is_a_version(store: LayoutStore, tmp_path: Path) -> None:
    def titled(name: str, content: bytes, **more: str) -> dict[str, Any]:
        blob = put(store, content)
        return {
            "mediaType": "application/octet-stream",
            "digest": blob.digest,
            "size": blob.size,
            "annotations": {"org.opencontainers.image.title": name, **more},
        }

    empty = put(store, b"{}")
    document = {
        "schemaVersion": 2,
        "mediaType": manifest.MANIFEST_TYPE,
        "artifactType": "application/vnd.unknown.artifact.v1",
        "config": {"mediaType": manifest.EMPTY_TYPE, "digest": empty.digest, "size": 2},
        "layers": [titled("model.onnx", b"m"), titled("signature.json", SIGNATURE.encode())],
    }
    digest = put(store, json.dumps(document).encode()).digest
    assert pulled(store, digest, tmp_path / "out") == {"model.onnx": b"m", "signature.json": SIGNATURE.encode()}
    for at, (manifest_bytes, message) in enumerate(
        ((titled("../x", b"x"), "leads out"), (titled("d", b"d", **{manifest.UNPACK: "true"}), "folder"))
    ):
        hostile = put(store, json.dumps(document | {"layers": [titled("model.onnx", b"m"), manifest_bytes]}).encode())
        with pytest.raises(Corrupt, match=message):
            package.pull(store, hostile.digest, tmp_path / f"hostile{at}")


def base_image(store: LayoutStore) -> BaseImage:
    """Push a Docker image with content under /models, and open it as a base."""
    return build.open_base(store, push_image(store, [layer(("bin/sh", b"#!"), ("models/old.onnx", b"old"))], DOCKER))


def test_push_creates_an_image_that_is_pulled_like_any_version(
    store: LayoutStore, make_package: MakePackage, tmp_path: Path
) -> None:
    folder = make_package(model=onnx_bytes())
    (folder / "data").mkdir()
    (folder / "data" / ("x" * 120)).write_text("late")
    base = base_image(LayoutStore(tmp_path / "base" / "python"))
    notes = {"org.example.auc": "0.9"}
    pushed = package.push(store, folder, "flight-delay", "1.0.0", base=base, annotations=notes)
    second_push = package.push(LayoutStore(tmp_path / "again"), folder, "flight-delay", "1.0.0", base=base, annotations=notes)
    assert second_push == pushed
    contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert pulled(store, pushed.digest, tmp_path / "out") == contents
    fetched = Cache(tmp_path / "cache").fetch(store, pushed.digest)
    assert (fetched.name, fetched.version, fetched.annotations["org.example.auc"]) == ("flight-delay", "1.0.0", "0.9")
    described = manifest.parse(store.manifest(pushed.digest))
    assert [layer_bytes.media_type for layer_bytes in described.layers] == [f"{OCI}+gzip"] * 2
    config = json.loads(b"".join(store.blob(described.config)))
    assert len(config["rootfs"]["diff_ids"]) == 2
    assert config["config"]["Labels"]["org.opencontainers.image.version"] == "1.0.0"
    unpacked = gzip.decompress(b"".join(store.blob(described.layers[1])))
    assert digests.from_bytes(unpacked) == config["rootfs"]["diff_ids"][1]
    store._blob_path(described.layers[0].digest).unlink()  # the package is read without the base
    assert pulled(store, pushed.digest, tmp_path / "lean") == contents


def test_a_reader_that_ignores_the_annotation_has_the_same_files(
    store: LayoutStore, make_package: MakePackage, tmp_path: Path
) -> None:
    pushed = package.push(store, make_package(), "m", "1", base=base_image(store))
    without_annotation = store.manifest(pushed.digest).replace(b',"annotations":{"io.scorestream.models":"whole"}', b"")
    assert without_annotation != store.manifest(pushed.digest)
    files = pulled(store, put(store, without_annotation).digest, tmp_path / "out")
    assert sorted(files) == ["README.md", "golden.jsonl", "model.onnx", "signature.json"]


@pytest.mark.parametrize(
    ("config", "message"),
    [(b"[]", "not a valid document"), (b"{}", "names no layers"), (b'{"rootfs": {"diff_ids": 1}}', "names no layers")],
)
def test_an_invalid_base_is_refused(store: LayoutStore, config: bytes, message: str) -> None:
    blob = put(store, config)
    described = {"mediaType": manifest.IMAGE_CONFIG_TYPE, "digest": blob.digest, "size": blob.size}
    with pytest.raises(Corrupt, match=message):
        build.open_base(store, push_image(store, [], config=described))
