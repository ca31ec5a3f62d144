"""What WWW-Authenticate says, whoever wrote it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.stores.challenge import Challenge, parse


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ('Basic realm="x"', [Challenge("basic", {"realm": "x"})]),
        (
            'Bearer realm="https://auth.example.com/token",service="reg, one",scope="repository:a/b:pull,push"',
            [
                Challenge(
                    "bearer",
                    {"realm": "https://auth.example.com/token", "service": "reg, one", "scope": "repository:a/b:pull,push"},
                )
            ],
        ),
        ('BEARER Realm = bare , service="a \\"b\\""', [Challenge("bearer", {"realm": "bare", "service": 'a "b"'})]),
        ('Negotiate, Basic realm="x"', [Challenge("negotiate", {}), Challenge("basic", {"realm": "x"})]),
        ('Bearer realm="a",realm="b"', [Challenge("bearer", {"realm": "a"})]),
        ('Basic realm="never closed', [Challenge("basic", {}), Challenge("realm", {})]),
        ('realm="of nothing"', []),
        ("", []),
    ],
)
def test_headers(header: str, found: list[Challenge]) -> None:
    assert parse(header) == found


PIECES = st.sampled_from(["Bearer ", 'realm="', '"', ",", "=", "\\", "a"])


@given(st.text(max_size=200) | st.lists(PIECES, max_size=80).map("".join))
def test_any_header_reads(header: str) -> None:
    assert len(parse(header)) <= 50
