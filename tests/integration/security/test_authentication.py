"""Authentication x fault: each its own clear line within seconds, and code 3; what is right works on every listener."""

import time

import pytest

from tests.integration.security import rights
from tests.integration.security.conftest import NAME, Secured

SOON_SECONDS = 60.0  # to an end: not one try after another for ever; on a busy machine the interpreter alone takes 10 s


def refusal(secured: Secured, *flags: str) -> str:
    """What `scorer run` says before it ends with code 3, soon."""
    began = time.monotonic()
    said = secured.rig.run("scorer", "run", "scorer.yaml", *flags, code=3).stderr
    assert time.monotonic() - began < SOON_SECONDS
    return said


def test_every_way_of_authentication_works(secured: Secured) -> None:
    files = secured.broker.certificates
    mutual = {
        "protocol": "SSL",
        "ca_file": str(files.ca),
        "certificate_file": str(files.client.certificate),
        "key_file": str(files.client.key),
    }
    (secured.folder / "key-password").write_text(files.key_password)
    locked = mutual | {"key_file": str(files.locked_key), "key_password_file": "key-password"}
    clear = {"protocol": "SASL_PLAINTEXT", "mechanism": "SCRAM-SHA-512", "username": "scorer", "password_file": "password"}
    for listener, security in (
        ("SCRAM", secured.login("scorer")),
        ("CLEAR", clear),
        ("MUTUAL", mutual),
        ("MUTUAL", locked),
        ("NAMED", secured.login("scorer", verify_hostname=False)),
    ):
        secured.configure(listener, security)
        assert secured.checks(code=None).keys() <= {"sample"}, "an event of another test may be bad"


def test_a_wrong_password_and_a_wrong_name(secured: Secured) -> None:
    (secured.folder / "wrong").write_text("something else")
    secured.configure("SCRAM", secured.login("scorer", password_file="wrong"))
    said = refusal(secured)
    assert "refuses the log-in" in said
    assert "invalid credentials" in said
    assert "kafka.security.username (scorer)" in said
    secured.as_user("unknown")
    assert "kafka.security.username (unknown)" in refusal(secured)


def test_a_mechanism_that_the_broker_does_not_know(secured: Secured) -> None:
    secured.configure("SCRAM", secured.login("scorer", mechanism="PLAIN"))
    said = refusal(secured)
    assert "Unsupported SASL mechanism" in said
    assert "SCRAM-SHA-512" in said
    assert "kafka.security.mechanism (PLAIN)" in said


@pytest.mark.parametrize(
    ("listener", "line", "hint"),
    [
        ("EXPIRED", "has expired", "renew"),
        ("OTHER", "is for another host name", "kafka.security.verify_hostname"),
        ("FOREIGN", "authority that is not trusted", "kafka.security.ca_file"),
    ],
)
def test_a_broker_that_is_not_to_be_trusted(secured: Secured, listener: str, line: str, hint: str) -> None:
    files = secured.broker.certificates
    ca = files.foreign_ca if listener == "FOREIGN" else files.ca
    secured.configure("MUTUAL" if listener == "FOREIGN" else listener, {"protocol": "SSL", "ca_file": str(ca)})
    said = refusal(secured)
    assert line in said
    assert hint in said


@pytest.mark.parametrize("which", ["none", "foreign", "expired"])
def test_a_client_that_the_broker_does_not_trust(secured: Secured, which: str) -> None:
    files = secured.broker.certificates
    identity = {"foreign": files.foreign_client, "expired": files.expired_client}.get(which)
    proof = {"certificate_file": str(identity.certificate), "key_file": str(identity.key)} if identity else {}
    secured.configure("MUTUAL", {"protocol": "SSL", "ca_file": str(files.ca)} | proof)
    line = {
        "none": "wants a certificate of its clients",
        "foreign": f"refuses kafka.security.certificate_file ({files.foreign_client.certificate})",
        "expired": f"kafka.security.certificate_file ({files.expired_client.certificate}) expired on",
    }
    assert line[which] in refusal(secured)


def test_a_listener_that_speaks_another_protocol(secured: Secured) -> None:
    secured.configure("MUTUAL", {"protocol": "PLAINTEXT"})
    assert "speaks TLS, but kafka.security.protocol is PLAINTEXT" in refusal(secured)
    address = ("--bootstrap-servers", secured.broker.address("CLEAR"), "--timeout", "1")
    said = secured.rig.run("publisher", "audit", *address, "--input", "in", "--output", "out", code=4).stderr
    assert "accepts connections but does not answer over PLAINTEXT" in said
    assert "kafka.security.protocol" in said


def test_a_password_that_ends_ends_a_running_scorer(secured: Secured) -> None:
    secured.broker.users({"leaver": list(rights.scorer(NAME).values())})
    login = {"protocol": "SASL_PLAINTEXT", "mechanism": "SCRAM-SHA-512", "username": "leaver", "password_file": "password"}
    scorer = secured.configure("CLEAR", login).start("leaver").ready()
    secured.broker.forget("leaver")
    assert scorer.wait() == 3, scorer.said
    assert "refuses the log-in" in scorer.said
