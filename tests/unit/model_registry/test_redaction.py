"""Credentials are removed from text."""

import pytest

from model_registry.redaction import redacted

CASES = {
    "http://me:hush@host:8081/path": "http://***@host:8081/path",
    "cannot reach http://me:hu%2Fsh@host/a, retrying": "cannot reach http://***@host/a, retrying",
    "'http://me:hu/s@sh?@host'": "'http://***@host'",
    "http://token@host": "http://***@host",
    "SASL_SSL://me:hush@b:9092,c:9092": "SASL_SSL://***@b:9092,c:9092",
    "reference 'me:hush@host/x': neither": "reference '***@host/x': neither",
    "https://host/v2/blob?X-Signature=hush&a=1": "https://host/v2/blob?***",
    "registry:5000/flight@sha256:0a1b": "registry:5000/flight@sha256:0a1b",
    "oci:flight@sha256:0a1b": "oci:flight@sha256:0a1b",
    "oci:/models/flight@sha256:0a1b": "oci:/models/flight@sha256:0a1b",
    "/folder/http:/me:hush@host/x": "/folder/http:/***@host/x",
    "at 10:30, mail a@b.example?": "at 10:30, mail a@b.example?",
    "http://host:1/path": "http://host:1/path",
}


@pytest.mark.parametrize("text", CASES)
def test_credentials_of_urls_are_masked_and_nothing_else(text: str) -> None:
    assert redacted(text) == CASES[text]
