"""A bundle that cosign 3.1.3 wrote (`cosign sign --key`) holds here. `python -m tests cosign` asks cosign itself."""

import base64
from pathlib import Path

import msgspec
import pytest

from model_registry.errors import Refused
from model_registry.trust import bundle, keys, signing
from tests.unit.model_registry.keyring import NOW, ONE, trusted

PUBLIC = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEMvIuJrgZP543YcLXxTu9Ggj2P2cd
TytKfdyxXUwrsyZ0CsJ8r6apPUKk/B0LKOMO5kMSx/nS0ulkue1TyZOGbw==
-----END PUBLIC KEY-----
"""
DIGEST = "sha256:f7f2825cb4a640a46b7b0b86bb6a7f7c748be527e2027f74dacec72eba39913a"
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
    """The key that cosign made."""
    (tmp_path / "cosign.pub").write_text(PUBLIC)
    return keys.read_public(tmp_path / "cosign.pub")


def test_what_cosign_signed_verifies(cosign: keys.PublicKey) -> None:
    statement, key_id = signing.check(BUNDLE, DIGEST, [signing.TrustedKey("cosign", cosign)], NOW)
    assert (key_id, statement.predicate_type) == ("cosign", bundle.SIGNED)
    with pytest.raises(Refused):
        signing.check(BUNDLE, DIGEST, trusted(ONE), NOW)


def test_keys_are_hinted_at_as_cosign_does(cosign: keys.PublicKey) -> None:

    assert base64.b64encode(bytes.fromhex(cosign.fingerprint)).decode() == HINT
