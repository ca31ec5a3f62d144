"""Settings that are derived from others, and rejected settings."""

import json
from pathlib import Path
from typing import Any

import pytest
import trustme

from publisher.runtime.configuration import SettingsError
from scorer.settings import Settings, load

BASIS: dict[str, Any] = {
    "name": "n",
    "kafka": {"bootstrap_servers": "127.0.0.1:1"},
    "input": {"topics": ["in"]},
    "output": {"topic": "out"},
}


def settings(tmp_path: Path, model: dict[str, Any], *flags: str) -> Settings:
    """Load settings from a file in `tmp_path`, with these flags."""
    path = tmp_path / "scorer.yaml"
    path.write_text(json.dumps({**BASIS, "model": {"source": "oci:./r", **model}}))
    return load(path, flags).settings


@pytest.mark.parametrize("version", ["prod", f"sha256:{'a' * 64}"])
def test_a_version_in_the_source_is_rejected_in_favour_of_the_tag(tmp_path: Path, version: str) -> None:
    source = f"host.io/m{'@' if ':' in version else ':'}{version}"
    with pytest.raises(SettingsError) as rejected:
        settings(tmp_path, {"source": source})
    assert f"model.source: {source} names a version; write host.io/m, and set model.tag to {version}" in str(rejected.value)


@pytest.mark.parametrize(
    ("flags", "deadline"),
    [
        ([], 1_000),
        (["batching.latency_target_ms=30"], 1_500),
        (["batching.latency_target_ms=1"], 500),
        (["batching.latency_target_ms=900"], 2_500),
        (["batching.latency_target_ms=900", "model.deadline_ms=40"], 40),
        (["batching.max_events=7"], 1_000),
    ],
)
def test_the_default_of_the_deadline_follows_from_the_latency_target(tmp_path: Path, flags: list[str], deadline: float) -> None:
    assert settings(tmp_path, {}, *flags).model.deadline_ms == deadline


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder with an authority, a certificate, its key and another key."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for name in ("one", "two"):
        certificate = ca.issue_cert(name)
        certificate.cert_chain_pems[0].write_to_path(str(tmp_path / f"{name}.pem"))
        certificate.private_key_pem.write_to_path(str(tmp_path / f"{name}.key"))
    return tmp_path


def test_tls_files_resolve_from_the_configurations_folder(files: Path) -> None:
    tls = {"enabled": True, "ca_file": "ca.pem", "certificate_file": "one.pem", "key_file": "one.key"}
    assert settings(files, {"server_tls": tls}).model.server_tls.key_file == files / "one.key"


@pytest.mark.parametrize(
    ("tls", "message"),
    [
        ({"ca_file": "ca.pem"}, "set enabled: true"),
        ({"enabled": True, "certificate_file": "one.pem"}, "belong together"),
        (
            {"enabled": True, "ca_file": "x/ca.pem"},
            "cannot read .*; a relative path starts at the folder of the file that contains the setting",
        ),
        ({"enabled": True, "ca_file": "one.key"}, "no PEM certificate"),
        ({"enabled": True, "certificate_file": "one.pem", "key_file": "two.key"}, "is not the key of"),
    ],
)
def test_tls_that_cannot_work_is_refused_when_the_configuration_is_read(files: Path, tls: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as raised:
        settings(files, {"server_tls": tls})
    assert "model.server_tls" in str(raised.value)


@pytest.mark.parametrize("name", ["ca_file", "certificate_file", "key_file"])
def test_a_similar_file_is_suggested_if_a_tls_file_does_not_exist(files: Path, name: str) -> None:
    tls = {"enabled": True, "ca_file": "ca.pem", "certificate_file": "one.pem", "key_file": "one.key"}
    path = files / str(tls[name])
    missing = path.with_stem(f"{path.stem}-new")
    with pytest.raises(SettingsError) as raised:
        settings(files, {"server_tls": {**tls, name: missing.name}})
    reason = f"{name}: cannot read {missing}: No such file or directory; did you mean {str(path)!r}?"
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("flag", "keys"),
    [
        ("output.topic=in", ("input.topics[0]", "output.topic")),
        ("dead_letter.topic=in", ("input.topics[0]", "dead_letter.topic")),
        ("dead_letter.topic=out", ("output.topic", "dead_letter.topic")),
        ("output.topic=n.status", ("output.topic", "name (its status topic)")),
        ("dead_letter.topic=n.swaps", ("dead_letter.topic", "name (its swaps topic)")),
        ("output.topic=in.dead.replayed", ("output.topic", "dead_letter.topic (its topic of replayed dead letters)")),
        ("input.topics=[in,in]", ("input.topics[0]", "input.topics[1]")),
    ],
)
def test_two_keys_that_name_one_topic_are_refused_by_name(tmp_path: Path, flag: str, keys: tuple[str, str]) -> None:
    with pytest.raises(SettingsError) as raised:
        settings(tmp_path, {}, flag)
    assert all(key in str(raised.value) for key in keys), raised.value
