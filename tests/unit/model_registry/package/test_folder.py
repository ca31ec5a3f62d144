"""Model packages: accepted folders, no incomplete version under a tag, and the files of a pull."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import pytest

from model_registry import package
from model_registry.errors import BadReference, Corrupt, NotFound, Refused, Unreachable
from model_registry.oci import manifest
from model_registry.oci.manifest import Descriptor
from model_registry.onnx_tools import prepare_package as prepare
from model_registry.package.golden_examples import GoldenExample
from model_registry.package.signature import SignatureError
from model_registry.stores.oci_layout import LayoutStore
from tests.conformance.store import put, put_manifest
from tests.unit.model_registry.conftest import SIGNATURE, MakePackage


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Failing(LayoutStore):
    """A store that stops answering after a given number of writes, as a registry that fails during a push."""

    def __init__(self, path: Path, writes: int) -> None:
        super().__init__(path)
        self._writes_left = writes

    def _count(self) -> None:
        if self._writes_left == 0:
            raise Unreachable("the registry went down")
        self._writes_left -= 1

    def push_blob(self, content: Descriptor, stream: BinaryIO) -> None:
        self._count()
        super().push_blob(content, stream)

    def move_tags(self, to: Mapping[str, Descriptor], *, expect: Mapping[str, str | None]) -> None:
        self._count()
        super().move_tags(to, expect=expect)


class Overtaken(LayoutStore):
    """A store in which another client creates these tags just before the first move."""

    def __init__(self, path: Path, others: Mapping[str, Descriptor]) -> None:
        super().__init__(path)
        self._others = others

    def move_tags(self, to: Mapping[str, Descriptor], *, expect: Mapping[str, str | None]) -> None:
        others, self._others = self._others, {}
        super().move_tags(others, expect={})
        super().move_tags(to, expect=expect)


def test_a_pushed_package_is_pulled_unchanged(store: LayoutStore, make_package: MakePackage, tmp_path: Path) -> None:
    folder = make_package()
    (folder / "data").mkdir()
    (folder / "data" / "vocabulary.txt").write_text("late\n")
    pushed = package.push(store, folder, "flight-delay", "1.0.0")
    pulled = package.pull(store, store.resolve("1.0.0").digest, tmp_path / "out")
    assert (pulled.name, pulled.version, pulled.digest) == ("flight-delay", "1.0.0", pushed.digest)
    assert pulled.model_path.read_bytes() == b"weights"
    assert pulled.signature is not None
    assert [field.name for field in pulled.signature.fields] == ["a", "b"]
    assert pulled.golden == (GoldenExample({"a": 1.5}, 0.25, 1e-4),)
    assert contents(tmp_path / "out") == contents(folder)


def test_the_same_content_has_the_same_digest_everywhere(make_package: MakePackage, tmp_path: Path) -> None:
    folder = make_package()
    first = package.push(LayoutStore(tmp_path / "one"), folder, "m", "1.0.0")
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for path in copy.iterdir():
        os.utime(path, (0, 0))
    assert package.push(LayoutStore(tmp_path / "one"), copy, "m", "1.0.0") == first
    assert package.push(LayoutStore(tmp_path / "two"), copy, "m", "1.0.0") == first


def test_a_version_never_changes(store: LayoutStore, make_package: MakePackage) -> None:
    first = package.push(store, make_package("v1"), "m", "1.0.0")
    with pytest.raises(Refused, match=r"version 1\.0\.0 of .* exists with other content") as caught:
        package.push(store, make_package("other", model=b"other weights"), "m", "1.0.0")
    assert caught.value.exit_code == 3
    assert store.resolve("1.0.0") == first


def test_a_version_created_concurrently_by_another_client_never_changes(store: LayoutStore, make_package: MakePackage) -> None:
    other = put_manifest(store, "another version")
    with pytest.raises(Refused, match="exists with other content"):
        package.push(Overtaken(store._path, {"1.0.0": other}), make_package(), "m", "1.0.0")
    assert store.resolve("1.0.0").digest == other.digest


def test_a_channel_created_concurrently_by_another_client_is_no_version(store: LayoutStore, make_package: MakePackage) -> None:
    entry = put_manifest(store, "its first move")
    with pytest.raises(Refused, match="'canary' is a channel"):
        package.push(Overtaken(store._path, {"_h.canary.000001": entry}), make_package(), "m", "canary")
    assert store.tags() == ["_h.canary.000001"]


def test_a_push_that_breaks_off_leaves_no_tag_and_can_be_repeated(store: LayoutStore, make_package: MakePackage) -> None:
    folder = make_package()
    put(store, b"makes the repository")
    writes = 0
    while True:
        try:
            pushed = package.push(Failing(store._path, writes), folder, "m", "1.0.0")
        except Unreachable:
            assert store.tags() == []
            writes += 1
            continue
        break
    assert writes == 7  # config, four files, manifest, tag
    assert store.resolve("1.0.0") == pushed
    assert all(store.has_blob(blob.digest) for blob in manifest.parse_version(store.manifest(pushed.digest)).blobs)


@pytest.mark.parametrize("version", ["", "-1", "_h.prod.000001", "_1", "a b", "../x", "x" * 129])
def test_an_invalid_version_is_refused(store: LayoutStore, make_package: MakePackage, version: str) -> None:
    with pytest.raises(BadReference):
        package.push(store, make_package(), "m", version)


def test_a_broken_signature_is_refused_before_anything_is_stored(store: LayoutStore, make_package: MakePackage) -> None:
    with pytest.raises(SignatureError, match="did you mean 'inputs'"):
        package.push(store, make_package(signature=SIGNATURE.replace("inputs", "imputs")), "m", "1.0.0")
    assert not store._path.exists()


def test_hidden_files_are_not_pushed(store: LayoutStore, make_package: MakePackage) -> None:
    folder = make_package()
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("secret")
    (folder / ".git" / "link").symlink_to("/etc/passwd")
    pushed = package.push(store, folder, "m", "1.0.0")
    paths = [file.path for file in manifest.parse_version(store.manifest(pushed.digest)).files]
    assert paths == ["README.md", "golden.jsonl", "model.onnx", "signature.json"]


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda folder: (folder / "weights.bin").symlink_to("/etc/passwd"), "is a link"),
        (lambda folder: (folder / "readme.MD").write_text("# another\n"), "cannot exist beside"),  # not to every file system
    ],
)
def test_a_file_that_cannot_be_packed_is_refused(
    store: LayoutStore, make_package: MakePackage, spoil: Callable[[Path], object], fault: str
) -> None:
    folder = make_package()
    spoil(folder)
    with pytest.raises(Refused, match=fault):
        package.push(store, folder, "m", "1.0.0")


def test_pull_never_writes_outside_its_folder(store: LayoutStore, make_package: MakePackage, tmp_path: Path) -> None:
    pushed = package.push(store, make_package(), "m", "1.0.0")
    hostile = store.manifest(pushed.digest).replace(
        b'"org.cncf.model.filepath":"README.md"', b'"org.cncf.model.filepath":"../hostile"'
    )
    with pytest.raises(Corrupt, match=r"\.\./hostile"):
        package.pull(store, store.push_manifest(hostile).digest, tmp_path / "in" / "out")
    assert not (tmp_path / "in").exists()


def test_pull_of_another_artifact_is_refused(store: LayoutStore, tmp_path: Path) -> None:
    other = put_manifest(store, "no model")
    with pytest.raises(Corrupt, match=r"application/x\.test is not a model version"):
        package.pull(store, other.digest, tmp_path / "out")
    with pytest.raises(NotFound):
        package.pull(store, "sha256:" + "0" * 64, tmp_path / "out")


def test_pull_of_damaged_content_never_completes_a_file(store: LayoutStore, make_package: MakePackage, tmp_path: Path) -> None:
    pushed = package.push(store, make_package(), "m", "1.0.0")
    model = next(f for f in manifest.parse_version(store.manifest(pushed.digest)).files if f.path == "model.onnx")
    store._blob_path(model.content.digest).write_bytes(b"Weights")
    with pytest.raises(Corrupt, match=model.content.digest):
        package.pull(store, pushed.digest, tmp_path / "out")
    assert not (tmp_path / "out" / "model.onnx").exists()


@pytest.mark.parametrize("model", ["saved_model/saved_model.pb", "repository/model-settings.json", "remote.json"])
def test_a_model_for_a_server_is_a_package_too(tmp_path: Path, model: str) -> None:
    path = tmp_path / "package" / model
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(Refused, match=r"signature\.json"):
        prepare.prepare(tmp_path / "package")
    (tmp_path / "package" / "signature.json").write_text(SIGNATURE)

    ready = prepare.prepare(tmp_path / "package")

    assert ready.remote
    server_package = package.read(tmp_path / "package")
    assert server_package.model_path.name == model.partition("/")[0]
