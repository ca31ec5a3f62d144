"""References and digests are parsed, read back after writing, and rejected if invalid."""

import hashlib
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.errors import BadReference, Corrupt
from model_registry.oci import digests
from model_registry.oci.reference import ModelReference, is_tag, parse

DIGEST = "sha256:" + "0123456789abcdef" * 4

names = st.from_regex(r"[A-Za-z0-9._ é-]{1,20}", fullmatch=True).filter(lambda n: n.strip() == n and n not in (".", ".."))
tag_texts = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", fullmatch=True)
digest_texts = st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True)
hosts = st.sampled_from(["registry.example.com", "localhost", "localhost:5000", "ghcr.io", "10.0.0.1:443"])
paths = st.from_regex(r"[a-z0-9]{1,8}(/[a-z0-9]{1,8}([._-][a-z0-9]{1,8})?){0,3}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oci:./registry/flight-delay:1.0.0", ModelReference("oci", "/base/registry/flight-delay", "1.0.0")),
        ("oci:registry/flight-delay", ModelReference("oci", "/base/registry/flight-delay")),
        ("oci:/r/m:prod", ModelReference("oci", "/r/m", "prod")),
        (f"oci:/r/m@{DIGEST}", ModelReference("oci", "/r/m", None, DIGEST)),
        ("oci:/a:b/m:1", ModelReference("oci", "/a:b/m", "1")),
        ("oci:../m/", ModelReference("oci", "/m")),
        ("oci:/r//x/../m", ModelReference("oci", "/r/m")),
        ("registry.example.com/team/x:1", ModelReference("remote", "registry.example.com/team/x", "1")),
        ("localhost:5000/x", ModelReference("remote", "localhost:5000/x")),
        ("host:5000/x:1.0.0", ModelReference("remote", "host:5000/x", "1.0.0")),
        (f"ghcr.io/team/x@{DIGEST}", ModelReference("remote", "ghcr.io/team/x", None, DIGEST)),
    ],
)
def test_a_folder_and_a_remote(text: str, expected: ModelReference) -> None:
    assert parse(text, base_dir=Path("/base")) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "oci:",
        "oci:/",
        "oci://registry.example.com/m",
        "oci::1.0.0",
        "oci:./m:a:b",
        f"oci:./m:1@{DIGEST}",
        "oci:./m@sha256:abc",
        "oci:./m@sha512:" + "0" * 128,
        "oci:./m:-x",
        "oci:./m:",
        "oci:./m:" + "x" * 129,
        "oci:./m\n",
        " oci:./m",
        "oci:./m\0",
        "oci:./m\x1b[2J",
        "./registry/m:1",
        "m",
        "registry.example.com",
        "registry.example.com/UPPER",
        "registry.example.com:99999/x",
        "registry.example.com/../x",
        "https://registry.example.com/x",
    ],
)
def test_an_invalid_reference_is_named(text: str) -> None:
    with pytest.raises(BadReference) as caught:
        parse(text)
    assert repr(text)[1:-1] in str(caught.value)
    assert caught.value.hint
    assert caught.value.exit_code == 2


@given(st.lists(names, min_size=1, max_size=4), st.none() | tag_texts)
def test_a_written_folder_with_a_tag_is_read_back(parts: list[str], tag: str | None) -> None:
    reference = ModelReference("oci", "/" + "/".join(parts), tag)
    assert parse(str(reference), base_dir=Path("/elsewhere")) == reference
    assert reference.name == parts[-1]
    assert parse(str(reference.bare())) == ModelReference("oci", reference.repository)


@given(hosts, paths, st.none() | tag_texts, st.none() | digest_texts)
def test_a_written_remote_is_read_back(host: str, path: str, tag: str | None, digest: str | None) -> None:
    reference = ModelReference("remote", f"{host}/{path}", tag, None if tag else digest)
    assert parse(str(reference)) == reference


@given(st.text(max_size=60) | st.text(max_size=60).map("oci:".__add__))
def test_any_text_is_a_reference_or_a_named_error(text: str) -> None:
    try:
        reference = parse(text, base_dir=Path("/base"))
    except BadReference:
        return
    assert parse(str(reference)) == reference
    assert reference.tag is None or is_tag(reference.tag)
    assert reference.kind == "remote" or Path(reference.repository).is_absolute()


def test_the_working_directory_and_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse("oci:~/m:1").repository == str(tmp_path / "m")
    assert parse("oci:registry/m:1").repository == str(tmp_path / "registry" / "m")


@given(st.binary(max_size=2000))
def test_digests_are_hashlib_s(data: bytes) -> None:
    expected = hashlib.sha256(data).hexdigest()
    assert digests.from_bytes(data) == f"sha256:{expected}"
    assert digests.from_stream(io.BytesIO(data)) == (f"sha256:{expected}", len(data))
    assert digests.hex_digits(digests.from_bytes(data)) == expected


@given(st.text(max_size=80) | st.text("0123456789abcdef/.", min_size=60, max_size=66).map("sha256:".__add__))
def test_only_digests_become_file_names(text: str) -> None:
    if digests.is_digest(text):
        assert set(digests.hex_digits(text)) <= set("0123456789abcdef")
        assert len(digests.hex_digits(text)) == 64
    else:
        with pytest.raises(Corrupt):
            digests.hex_digits(text)
