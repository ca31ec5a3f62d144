"""Manifests are written reproducibly and validated when read."""

import contextlib
import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_registry import atomic_files
from model_registry.errors import Corrupt
from model_registry.oci import digests, manifest
from model_registry.oci.manifest import Descriptor, VersionFile

RAW = "application/vnd.cncf.model.weight.v1.raw"


DEFINED_KEYS = (
    "schemaVersion",
    "mediaType",
    "artifactType",
    "config",
    "layers",
    "manifests",
    "annotations",
    "digest",
    "size",
    "platform",
    "os",
    "subject",
    manifest.TITLE,
    manifest.FILEPATH,
    manifest.MODEL_TYPE,
    manifest.MANIFEST_TYPE,
    manifest.INDEX_TYPE,
    manifest.IMAGE_CONFIG_TYPE,
    manifest.DOCKER_MANIFEST_TYPE,
    "sha256:" + "0" * 64,
    "model.onnx",
)


def file(path: str, content: bytes = b"x") -> VersionFile:
    return VersionFile(path, Descriptor(media_type=RAW, digest=digests.from_bytes(content), size=len(content)))


def version(*files: VersionFile) -> bytes:
    config = manifest.build_config("m", "1.0.0", None, [file.content.digest for file in files])
    return manifest.build_version("m", "1.0.0", None, files, config)


def layer(**changes: Any) -> dict[str, Any]:
    return {"mediaType": RAW, "digest": "sha256:" + "0" * 64, "size": 1, "annotations": {manifest.FILEPATH: "a"}} | changes


def changed(**changes: Any) -> bytes:
    """Return a valid manifest with keys replaced, or left out if their value is None."""
    document = json.loads(version(file("model.onnx"))) | changes
    return json.dumps({key: value for key, value in document.items() if value is not None}).encode()


def test_a_written_version_is_read_back() -> None:
    files = [file("model.onnx", b"weights"), file("data/a.bin", b"a")]
    parsed = manifest.parse_version(version(*files))
    assert (parsed.name, parsed.version, parsed.created) == ("m", "1.0.0", None)
    assert [(file.path, file.content.digest) for file in parsed.files] == [
        ("data/a.bin", digests.from_bytes(b"a")),
        ("model.onnx", digests.from_bytes(b"weights")),
    ]


def test_it_is_a_modelpack_manifest() -> None:
    document = json.loads(version(file("model.onnx")))
    assert document["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert document["artifactType"] == "application/vnd.cncf.model.manifest.v1+json"
    assert document["layers"][0]["mediaType"] == RAW
    assert document["layers"][0]["annotations"] == {
        "org.cncf.model.filepath": "model.onnx",
        "org.opencontainers.image.title": "model.onnx",
    }
    document["config"]["mediaType"] = "application/vnd.cncf.model.config.v1+json"  # another tool's
    assert manifest.parse_version(json.dumps(document).encode()).version == "1.0.0"


@pytest.mark.parametrize(
    "data",
    [
        changed(schemaVersion=1),
        changed(schemaVersion="2"),
        changed(mediaType="application/vnd.oci.image.index.v1+json"),
        changed(artifactType="application/x.other", layers=[layer()]),
        changed(artifactType=None, layers=[layer()]),
        changed(config=None),
        changed(config={"mediaType": "x", "digest": "sha256:" + "0" * 64, "size": 1}, layers=[layer()]),
        changed(layers=[]),
        changed(layers=None),
        changed(annotations=None),
        changed(annotations={"org.opencontainers.image.title": "m"}),
        changed(layers=[layer(annotations={})]),
        changed(layers=[layer(digest="sha256:../x")]),
        changed(layers=[layer(digest="sha512:" + "0" * 128)]),
        changed(layers=[layer(size=-1)]),
        changed(layers=[layer(size=1 << 60)]),
        changed(layers=[layer(size=1.5)]),
        changed(layers=[layer(mediaType="application/vnd.cncf.model.weight.v1.tar")]),
        changed(layers=[layer(annotations={manifest.FILEPATH: "../x"})]),
        changed(layers=[layer(), layer()]),
        changed(layers=[layer(annotations={manifest.FILEPATH: str(at)}) for at in range(manifest.MAX_FILES + 1)]),
        b"[" * 100_000,
        b" " * (manifest.MAX_BYTES + 1),
    ],
)
def test_an_invalid_version_is_corrupt(data: bytes) -> None:
    assert manifest.parse_version(changed(layers=[layer()])).files[0].path == "a"
    with pytest.raises(Corrupt):
        manifest.parse_version(data)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1 << 60) | st.text(max_size=20) | st.sampled_from(list(DEFINED_KEYS)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(DEFINED_KEYS)), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(list(DEFINED_KEYS)), json_values, max_size=7), st.binary(max_size=200))
def test_any_document_is_a_version_or_corrupt_and_any_bytes_are(changes: dict[str, Any], random: bytes) -> None:
    with pytest.raises(Corrupt):
        manifest.parse_version(random)
    data = json.dumps({**json.loads(version(file("model.onnx"))), **changes}).encode()
    for parse in (manifest.parse_version, manifest.parse_index, manifest.describe_manifest):
        with contextlib.suppress(Corrupt):
            parse(data)


@pytest.mark.parametrize(
    "refused",
    [
        ["../x"],
        ["a/../../x"],
        ["/etc/passwd"],
        [""],
        ["."],
        [".."],
        ["a/."],
        ["a//b"],
        ["a/"],
        ["a\\b"],
        ["C:x"],
        ["a\0b"],
        ["a\nb"],
        ["x" * 256],
        ["é" * 128],
        ["a/" * 600 + "b"],
        ["a", "a"],
        ["README.md", "readme.MD"],
        ["a", "a/b"],
        ["A/b", "a"],
    ],
)
def test_paths_that_are_refused(refused: list[str]) -> None:
    with pytest.raises(Corrupt):
        atomic_files.check_paths(refused)


@given(st.lists(st.text("aAb./\\:\0é ", max_size=12), max_size=4))
def test_accepted_paths_stay_inside_and_apart(named: list[str]) -> None:
    try:
        atomic_files.check_paths(named)
    except Corrupt:
        return
    root = Path("/folder")
    for path in named:
        assert (root / path).resolve().is_relative_to(root)
        assert (root / path).resolve() != root
        assert str(PurePosixPath(path)) == path
    assert len({path.casefold() for path in named}) == len(named)
