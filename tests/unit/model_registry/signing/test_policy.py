"""The policy file: its meaning, and the error for every mistake."""

import contextlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_registry.errors import BadFile
from model_registry.signing import policy
from tests.unit.model_registry.keyring import ONE, TWO

DENIED = "sha256:" + "0" * 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, key in (("one", ONE), ("two", TWO)):
        (tmp_path / f"{name}.pub").write_bytes(key.public().pem())
    return tmp_path


def read(folder: Path, text: str) -> policy.Policy:
    path = folder / "policy.yaml"
    path.write_text(text)
    return policy.read(path)


def test_a_key_is_for_versions_and_moves_unless_its_use_names_one_of_them(folder: Path) -> None:
    shared = read(folder, "signatures: required\nmoves: signed\nkeys: [{id: a, file: one.pub}]")
    assert shared.signed_moves
    assert shared.keys == shared.move_keys
    keys = "[{id: a, file: one.pub, use: versions}, {id: b, file: two.pub, use: moves}]"
    separate = read(folder, f"signatures: required\nmoves: signed\nkeys: {keys}")
    assert [[key.id for key in keys] for keys in (separate.keys, separate.move_keys)] == [["a"], ["b"]]
    assert not read(folder, "signatures: required\nkeys: [{id: a, file: one.pub}]").signed_moves
    for text in (
        "signatures: optional\nmoves: signed",
        "signatures: optional\nmoves: signed\nkeys: [{id: a, file: one.pub, use: versions}]",
    ):
        with pytest.raises(BadFile, match="moves must be signed, but there are no keys for moves"):
            read(folder, text)
    with pytest.raises(BadFile, match="no keys for versions"):
        read(folder, "signatures: required\nkeys: [{id: a, file: one.pub, use: moves}]")
    with pytest.raises(BadFile, match="moves"):
        read(folder, "signatures: optional\nmoves: required")


def test_a_policy_is_read_with_its_keys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    parsed = read(
        folder,
        f"""
signatures: required
keys:
  - {{id: new, file: one.pub}}
  - {{id: old, file: {folder}/two.pub, not_after: 2027-01-31}}
denied: ["{DENIED}"]
""",
    )
    assert (parsed.required, parsed.named) == (True, False)
    assert read(folder, "signatures: optional\nnames: required\nkeys: [{id: a, file: one.pub}]").named
    assert read(folder, "signatures: optional\ncomparisons: required\nkeys: [{id: a, file: one.pub}]").compared
    assert not parsed.compared
    assert [(key.id, key.key.fingerprint) for key in parsed.keys] == [
        ("new", ONE.public().fingerprint),
        ("old", TWO.public().fingerprint),
    ]
    assert parsed.denied == {DENIED}
    optional = read(folder, "signatures: optional\nkeys:\n")
    assert (optional.required, optional.keys) == (False, ())


@pytest.mark.parametrize(
    ("not_after", "until"),
    [
        ("2027-01-31", datetime(2027, 2, 1, tzinfo=UTC)),
        ("2027-01-31T12:00:00Z", datetime(2027, 1, 31, 12, tzinfo=UTC)),
        ("2027-01-31T12:00:00+02:00", datetime(2027, 1, 31, 10, tzinfo=UTC)),
        ("2027-01-31 12:00:00", datetime(2027, 1, 31, 12, tzinfo=UTC)),
        ("null", None),
    ],
)
def test_a_key_ends_at_its_stated_time(folder: Path, not_after: str, until: datetime | None) -> None:
    parsed = read(folder, f"signatures: required\nkeys: [{{id: a, file: one.pub, not_after: {not_after}}}]")
    assert parsed.keys[0].not_after == until


WRONG = {
    "": "is not a mapping",
    "[]": "is not a mapping",
    "a: [": "is not YAML",
    "signatures: required\nsignatures: optional": "is given twice, the second time in line 2",
    "{}": "'signatures' is missing",
    "signatures: yes": "neither required nor optional",
    "signatures: required": "there are no keys",
    "signatures: optional\ncomparisons: required": "comparisons are required, but there are no keys",
    "signatures: optional\ncomparisons: yes": "comparisons: True is neither required nor optional",
    "signatures: optional\nnames: yes": "names: True is neither required nor optional",
    "signature: required": "did you mean 'signatures'",
    "signatures: optional\nkeys: {}": "keys: {} is not a list",
    "signatures: optional\nkeys: [a]": "keys[0]: 'a' is not a mapping",
    "signatures: optional\nkeys: [{id: a}]": "keys[0]: the key 'file' is missing",
    "signatures: optional\nkeys: [{id: a, path: one.pub}]": "unknown key 'path'",
    "signatures: optional\nkeys: [{id: a, file: one.pub, notafter: 2027-01-01}]": "did you mean 'not_after'",
    "signatures: optional\nkeys: [{id: 7, file: one.pub}]": "keys[0].id: 7 is not a text",
    "signatures: optional\nkeys: [{id: a, file: nowhere.pub}]": "nowhere.pub",
    "signatures: optional\nkeys: [{id: a, file: one.pub, not_after: soon}]": "'soon' is not a valid date",
    "signatures: optional\nkeys: [{id: a, file: one.pub, not_after: 2027}]": "2027 is not a valid date",
    "signatures: optional\nkeys: [{id: a, file: one.pub}, {id: a, file: two.pub}]": "the id 'a' is repeated",
    "signatures: optional\nkeys: [{id: a, file: one.pub}, {id: b, file: one.pub}]": "is repeated",
    "signatures: optional\ndenied: sha256": "denied: 'sha256' is not a list",
    "signatures: optional\ndenied: ['1.0.0']": "denied[0]: '1.0.0' is not a valid digest",
    "signatures: optional\nx: 1\n1: 2": "unknown key 'x'",
    "signatures: !!python/object:os.system {}": "is not YAML",
    "signatures: optional\n{[a]: b}: 1": "is not YAML",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_policy_is_refused_with_file_fault_and_remedy(folder: Path, text: str) -> None:
    with pytest.raises(BadFile) as refused:
        read(folder, text)
    assert WRONG[text] in str(refused.value)
    assert "nowhere.pub" in text or "policy.yaml" in str(refused.value)
    assert refused.value.hint


def test_a_missing_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"nowhere\.yaml: No such file"):
        policy.read(tmp_path / "nowhere.yaml")
    (tmp_path / "large.yaml").write_bytes(b" " * (policy.MAX_BYTES + 1))
    with pytest.raises(BadFile, match="more than"):
        policy.read(tmp_path / "large.yaml")


@settings(max_examples=150)
@given(st.one_of(st.binary(max_size=60), st.text("signatures:optional\n-[]{}&*!'\" #", max_size=60).map(str.encode)))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(data)
    with contextlib.suppress(BadFile):
        assert not policy.read(path).required
