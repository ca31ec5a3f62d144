"""Signatures: valid ones, and every invalid one."""

import base64
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_registry.errors import Corrupt, Refused, RegistryError
from model_registry.oci import digests, manifest
from model_registry.signing import bundle, keys, referrers, signatures
from model_registry.stores.oci_layout import LayoutStore
from tests.unit.model_registry.keyring import NOW, ONE, TWO, ApiStore, trusted, version

DIGEST = digests.from_bytes(b"a version")
OTHER = digests.from_bytes(b"another version")


def signed(digest: str = DIGEST, predicate_type: str = bundle.SIGNED) -> bytes:
    return bundle.build(bundle.build_statement(digest, predicate_type, {}), ONE)


@pytest.fixture(params=[LayoutStore, ApiStore])
def repository(request: pytest.FixtureRequest, store: LayoutStore) -> LayoutStore:
    """Return a store without and one with the referrers API."""
    created: LayoutStore = request.param(store._path)
    return created


@pytest.fixture
def digest(repository: LayoutStore) -> str:
    return version(repository)


def test_two_keys_both_count_and_each_signs_once(repository: LayoutStore, digest: str) -> None:
    for key in (ONE, TWO):
        assert signatures.sign(repository, digest, key, NOW)
        assert signatures.sign(repository, digest, key, NOW) is None
    assert sorted(signatures.verify(repository, digest, trusted(ONE, TWO), NOW)) == ["key-1", "key-2"]
    assert len(referrers.listed(repository, digest)) == 2


def test_an_unsigned_version_is_refused_with_the_remedy(repository: LayoutStore, digest: str) -> None:
    with pytest.raises(Refused, match="there is no signature") as refused:
        signatures.verify(repository, digest, trusted(ONE), NOW)
    assert "model-registry sign" in refused.value.hint


def test_keys_rotate(repository: LayoutStore) -> None:
    """The old and the new key are trusted together. After the end of the old key, a version that both signed is still valid."""
    digest, end = version(repository), NOW + timedelta(days=1)
    old, new = trusted(ONE, not_after=end), trusted(TWO)
    signatures.sign(repository, digest, ONE, NOW)
    assert signatures.verify(repository, digest, old + new, NOW)
    with pytest.raises(Refused, match=f"until {end:%Y-%m-%d %H:%M}Z only"):
        signatures.verify(repository, digest, old + new, end)
    signatures.sign(repository, digest, TWO, NOW)
    assert signatures.verify(repository, digest, old + new, end) == ["key-1"]
    assert signatures.verify(repository, digest, new, end)


def test_a_signature_that_was_moved_to_another_version_is_refused(repository: LayoutStore) -> None:
    first, second = version(repository, "one"), version(repository, "two")
    referrers.attach(repository, second, bundle.MEDIA_TYPE, signed(first), {})
    with pytest.raises(Refused, match="for another digest"):
        signatures.verify(repository, second, trusted(ONE), NOW)


def test_a_bad_signature_beside_a_good_one_is_ignored(repository: LayoutStore, digest: str) -> None:
    for content in (b"", b"noise", signed(OTHER)):
        referrers.attach(repository, digest, bundle.MEDIA_TYPE, content, {})
    signatures.sign(repository, digest, ONE, NOW)
    assert signatures.verify(repository, digest, trusted(ONE), NOW) == ["key-1"]


def test_a_damaged_bundle_is_refused(store: LayoutStore) -> None:
    digest = version(store)
    signatures.sign(store, digest, ONE, NOW)
    (listed,) = referrers.listed(store, digest)
    blob = store._blob_path(manifest.parse(store.manifest(listed.digest)).layers[0].digest)
    blob.write_bytes(blob.read_bytes()[:-1] + b" ")
    with pytest.raises(Refused, match="has digest"):
        signatures.verify(store, digest, trusted(ONE), NOW)


def test_too_large_a_bundle_is_neither_written_nor_read(repository: LayoutStore, digest: str) -> None:
    with pytest.raises(Refused, match="the limit is"):
        signatures.attach(repository, digest, "x", b" " * bundle.MAX_BYTES, ONE, NOW)
    large = signed(digest) + b" " * bundle.MAX_BYTES
    referrers.attach(repository, digest, bundle.MEDIA_TYPE, large, {})
    with pytest.raises(Refused, match="does not contain one signature bundle"):
        signatures.verify(repository, digest, trusted(ONE), NOW)


def changed(change: Callable[[dict[str, Any]], object], digest: str = DIGEST) -> bytes:
    document = msgspec.json.decode(signed(digest))
    change(document)
    return msgspec.json.encode(document)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def envelope(**keys: object) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["dsseEnvelope"].update(keys)


GOOD = signed()
STATEMENT = bundle.build_statement(OTHER, bundle.SIGNED, {})
TAMPERED: dict[str, Callable[[dict[str, Any]], object]] = {
    "another payload": envelope(payload=encoded(STATEMENT)),
    "another payload type": envelope(payloadType="application/json"),
    "no base64": envelope(payload="***"),
    "base64 of another alphabet": envelope(payload="--__"),
    "no signature": envelope(signatures=[]),
    "two signatures": lambda document: document["dsseEnvelope"]["signatures"].append({"sig": "AAAA"}),
    "an empty signature": envelope(signatures=[{"sig": ""}]),
    "a signature of zeros": envelope(signatures=[{"sig": encoded(bytes(71))}]),
    "r and s of zero": envelope(signatures=[{"sig": encoded(b"\x30\x06\x02\x01\x00\x02\x01\x00")}]),
    "another version of the format": lambda document: document.update(mediaType="application/vnd.dev.sigstore.bundle+json"),
    "no envelope": lambda document: document.pop("dsseEnvelope"),
    "a message signature": lambda document: document.update(
        messageSignature={"signature": document.pop("dsseEnvelope")["signatures"][0]["sig"]}
    ),
    "null": envelope(signatures=None),
}


@pytest.mark.parametrize("change", TAMPERED.values(), ids=TAMPERED)
def test_a_tampered_bundle_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises((Corrupt, Refused)):
        signatures.check(changed(change), DIGEST, trusted(ONE, TWO), NOW)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b"[]",
        STATEMENT.replace(b"_type", b"type"),
        STATEMENT.replace(b"in-toto", b"out-toto"),
        STATEMENT.replace(b"sha256", b"sha512"),
        STATEMENT.replace(b'"subject":[', b'"subject":[],"x":['),
        b'{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":7}}],"predicateType":"x"}',
    ],
)
def test_a_signed_payload_that_is_no_statement_about_the_version_is_refused(payload: bytes) -> None:
    with pytest.raises((Corrupt, Refused)):
        signatures.check(bundle.build(payload, ONE), DIGEST, trusted(ONE), NOW)


def test_the_encoding_that_is_signed_is_that_of_the_dsse_specification() -> None:
    assert bundle.encoded("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


@settings(max_examples=150)
@given(st.data())
def test_a_bundle_with_anything_changed_never_verifies_for_another_digest(data: st.DataObject) -> None:
    """After changed, removed or inserted bytes, a bundle may still verify (a changed hint), but only for the signed digest."""
    bundle_bytes = GOOD
    at = data.draw(st.integers(0, len(bundle_bytes)))
    noise = data.draw(st.binary(max_size=4))
    damaged = bundle_bytes[:at] + noise + bundle_bytes[at + data.draw(st.integers(0, 4)) :]
    try:
        statement, _ = signatures.check(damaged, DIGEST, trusted(ONE), NOW)
    except RegistryError:
        pass
    else:
        assert statement == bundle.parse_statement(bundle.parse(bundle_bytes).payload)
    with pytest.raises(RegistryError):
        signatures.check(damaged, OTHER, trusted(ONE), NOW)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150)
@given(st.sampled_from(["mediaType", "dsseEnvelope", "payload", "payloadType", "signatures", "sig"]), JSON)
def test_any_value_anywhere_in_a_bundle_raises_only_registry_errors(key: str, value: object) -> None:
    document = msgspec.json.decode(GOOD)
    for place in (document, document["dsseEnvelope"], document["dsseEnvelope"]["signatures"][0]):
        if key in place:
            place[key] = value
            break
    with pytest.raises(RegistryError):
        signatures.check(msgspec.json.encode(document), DIGEST, trusted(ONE), NOW)


def signed_json(value: object) -> bytes:
    return bundle.build(msgspec.json.encode(value), ONE)


@settings(max_examples=300)
@given(st.binary(max_size=300) | JSON.map(signed_json))
def test_any_bytes_and_any_signed_json_raise_only_registry_errors(content: bytes) -> None:
    with pytest.raises(RegistryError):
        signatures.check(content, DIGEST, trusted(ONE), NOW)


PUBLIC = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEMvIuJrgZP543YcLXxTu9Ggj2P2cd
TytKfdyxXUwrsyZ0CsJ8r6apPUKk/B0LKOMO5kMSx/nS0ulkue1TyZOGbw==
-----END PUBLIC KEY-----
"""
COSIGNED = "sha256:f7f2825cb4a640a46b7b0b86bb6a7f7c748be527e2027f74dacec72eba39913a"
PAYLOAD = (
    "eyJfdHlwZSI6Imh0dHBzOi8vaW4tdG90by5pby9TdGF0ZW1lbnQvdjEiLCJzdWJqZWN0IjpbeyJkaWdlc3QiOnsic2hhMjU2IjoiZjdmMjgyNW"
    "NiNGE2NDBhNDZiN2IwYjg2YmI2YTdmN2M3NDhiZTUyN2UyMDI3Zjc0ZGFjZWM3MmViYTM5OTEzYSJ9LCJhbm5vdGF0aW9ucyI6e319XSwicHJl"
    "ZGljYXRlVHlwZSI6Imh0dHBzOi8vc2lnc3RvcmUuZGV2L2Nvc2lnbi9zaWduL3YxIiwicHJlZGljYXRlIjp7fX0="
)
SIGNATURE = "MEUCIERUEDNCvaVDLKW9MeQoSgmrOb4J1Q/PxNXlIsCPam4wAiEAyJAL4iqH6wXaaGkm/sgsZjwP1fAcrJ4L8rU+uEVCfnY="
HINT = "QTvFcRa5BC3GexPv1b/ojWH8NQ9hMktJfELNEqbuuy0="
BUNDLE = msgspec.json.encode(
    {
        "mediaType": bundle.MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": HINT}},
        "dsseEnvelope": {"payload": PAYLOAD, "payloadType": bundle.PAYLOAD_TYPE, "signatures": [{"sig": SIGNATURE}]},
    }
)


@pytest.fixture
def cosign(tmp_path: Path) -> keys.PublicKey:
    (tmp_path / "cosign.pub").write_text(PUBLIC)
    return keys.read_public(tmp_path / "cosign.pub")


def test_a_signature_of_cosign_verifies(cosign: keys.PublicKey) -> None:
    statement, key_id = signatures.check(BUNDLE, COSIGNED, [signatures.TrustedKey("cosign", cosign)], NOW)
    assert (key_id, statement.predicate_type) == ("cosign", bundle.SIGNED)
    assert base64.b64encode(bytes.fromhex(cosign.fingerprint)).decode() == HINT
    with pytest.raises(Refused):
        signatures.check(BUNDLE, COSIGNED, trusted(ONE), NOW)
