"""Authentication x fault: each its own clear line within seconds, and code 3; what is right works on every listener."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.security import rights
from tests.integration.security.conftest import NAME, Secured

SOON_SECONDS = 60.0  # to an end: not one try after another for ever; on a busy machine the interpreter alone takes 10 s


def refusals(secured: Secured) -> Iterator[tuple[str, dict[str, Any], tuple[str, ...]]]:
    """Yield a listener, the client's settings, and the parts of the error message."""
    files = secured.broker.certificates
    tls = {"protocol": "SSL", "ca_file": str(files.ca)}
    (secured.folder / "wrong").write_text("something else")
    wrong = ("refuses the log-in", "invalid credentials", "kafka.security.username (scorer)")
    yield "SCRAM", secured.login("scorer", password_file="wrong"), wrong
    yield "SCRAM", secured.login("unknown"), ("kafka.security.username (unknown)",)
    mechanism = ("Unsupported SASL mechanism", "SCRAM-SHA-512", "kafka.security.mechanism (PLAIN)")
    yield "SCRAM", secured.login("scorer", mechanism="PLAIN"), mechanism
    yield "EXPIRED", tls, ("has expired", "renew")
    yield "OTHER", tls, ("is for another host name", "kafka.security.verify_hostname")
    foreign = {"protocol": "SSL", "ca_file": str(files.foreign_ca)}
    yield "MUTUAL", foreign, ("authority that is not trusted", "kafka.security.ca_file")
    yield "MUTUAL", tls, ("requires a client certificate",)
    for identity, message in (
        (files.foreign_client, f"refuses kafka.security.certificate_file ({files.foreign_client.certificate})"),
        (files.expired_client, f"kafka.security.certificate_file ({files.expired_client.certificate}) expired on"),
    ):
        yield "MUTUAL", secured.mutual(certificate_file=str(identity.certificate), key_file=str(identity.key)), (message,)
    yield "MUTUAL", {"protocol": "PLAINTEXT"}, ("speaks TLS, but kafka.security.protocol is PLAINTEXT",)


@pytest.mark.timeout(900)
def test_authentication_errors_are_reported_soon_and_clearly(secured: Secured) -> None:
    for listener, security, parts in refusals(secured):
        secured.configure(listener, security)
        began = time.monotonic()
        message = secured.rig.run("scorer", "run", "scorer.yaml", code=3).stderr
        assert time.monotonic() - began < SOON_SECONDS
        assert all(part in message for part in parts), message


def test_every_way_of_authentication_works(secured: Secured) -> None:
    files = secured.broker.certificates
    (secured.folder / "key-password").write_text(files.key_password)
    locked = secured.mutual(key_file=str(files.locked_key), key_password_file="key-password")
    clear = {"protocol": "SASL_PLAINTEXT", "mechanism": "SCRAM-SHA-512", "username": "scorer", "password_file": "password"}
    for listener, security in (
        ("SCRAM", secured.login("scorer")),
        ("CLEAR", clear),
        ("MUTUAL", secured.mutual()),
        ("MUTUAL", locked),
        ("NAMED", secured.login("scorer", verify_hostname=False)),
    ):
        secured.configure(listener, security)
        assert secured.checks(code=None).keys() <= {"sample"}, "an event of another test may be bad"


def test_a_listener_that_does_not_answer_over_plaintext(secured: Secured) -> None:
    address = ("--bootstrap-servers", secured.broker.address("CLEAR"), "--timeout", "1")
    message = secured.rig.run("publisher", "audit", *address, "--input", "in", "--output", "out", code=4).stderr
    assert "accepts connections but does not answer over PLAINTEXT" in message
    assert "kafka.security.protocol" in message


def test_a_password_that_ends_ends_a_running_scorer(secured: Secured) -> None:
    secured.broker.users({"leaver": list(rights.scorer(NAME).values())})
    login = {"protocol": "SASL_PLAINTEXT", "mechanism": "SCRAM-SHA-512", "username": "leaver", "password_file": "password"}
    scorer = secured.configure("CLEAR", login).start("leaver").ready()
    secured.broker.forget("leaver")
    assert scorer.wait() == 3, scorer.said
    assert "refuses the log-in" in scorer.said
