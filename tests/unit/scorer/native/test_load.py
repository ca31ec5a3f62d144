"""The status of the native part: loaded, or the reason why not. An object of other sources is not used."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scorer.native import compiler, load
from tests.chaos.fuzz import native
from tests.unit.scorer.decoding.formats import scanner_of


@pytest.fixture(autouse=True)
def _uncached() -> Iterator[None]:
    load.native_library.cache_clear()
    yield
    load.native_library.cache_clear()


def test_the_environment_disables_the_native_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiler.SWITCH, "0")
    native = load.native_library()
    assert native.library is None
    assert "SCORESTREAM_NATIVE=0 disables it" in native.status


@pytest.mark.parametrize(("content", "status"), [(None, "not built"), (b"no object", "does not load")])
def test_a_missing_or_broken_object_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None, status: str
) -> None:
    if content is not None:
        (tmp_path / "scanner.so").write_bytes(content)
    monkeypatch.setattr(load, "OBJECT", tmp_path / "scanner.so")
    assert status in load.native_library().status


@pytest.mark.debian("cc")
def test_an_object_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiler, "source_digest", lambda: "older")
    compiler.compile_to(tmp_path / "other.so")
    monkeypatch.setattr(load, "OBJECT", tmp_path / "other.so")
    assert "other sources" in load.native_library().status


@pytest.mark.debian("cc")
def test_it_is_compiled_without_a_warning_and_loads(tmp_path: Path) -> None:
    target = tmp_path / "scanner.so"
    completed = subprocess.run(
        [
            "cc",
            *compiler.FLAGS,
            "-Werror",
            "-Wconversion",
            "-Wno-sign-conversion",
            "-fPIC",
            "-shared",
            "-o",
            str(target),
            *map(str, compiler.SOURCES),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr


def test_a_compiler_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(compiler.NotCompiled, match="false failed"):
        compiler.compile_to(tmp_path / "scanner.so")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_compiler_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ziglang", None)
    with pytest.raises(compiler.NotCompiled, match="no C compiler"):
        compiler.compile_to(tmp_path / "scanner.so")


@pytest.mark.debian("cc")
def test_names_that_cannot_be_compared_are_refused() -> None:
    for names in (["a", "a"], ['a"'], ["é"]):
        with pytest.raises(ValueError, match="field names must be distinct, of printable ASCII without quotes and backslashes"):
            scanner_of(names)


SECONDS = 3


@pytest.mark.debian("cc")
def test_mutated_events_touch_no_byte_beside_the_buffers(tmp_path: Path) -> None:
    counts = native.run(native.built("scanner", tmp_path), 1, SECONDS)
    assert counts["events"] >= 2_000
    assert 0.2 < counts["certain"] / counts["events"] < 0.8


@pytest.mark.debian("cc")
def test_mutated_records_touch_no_byte_beside_the_buffers(tmp_path: Path) -> None:
    counts = native.run(native.built("source_positions", tmp_path), 1, SECONDS)
    assert counts["records"] >= 2_000
    assert 0.5 < counts["certain"] / counts["records"] < 0.9


@pytest.mark.debian("cc")
def test_messages_and_records_touch_no_byte_beside_the_buffers(tmp_path: Path) -> None:
    counts = native.run(native.built("librdkafka", tmp_path), 1, SECONDS)
    assert min(counts["messages"], counts["records"]) >= 2_000


@pytest.mark.debian("cc")
def test_an_index_of_keys_agrees_with_an_array_and_touches_no_byte_beside_its_buffers(tmp_path: Path) -> None:
    assert native.run(native.built("key_index", tmp_path), 1, SECONDS)["looked_up"] >= 2_000


@pytest.mark.debian("cc")
def test_rows_of_feature_records_touch_no_byte_beside_the_buffers(tmp_path: Path) -> None:
    assert native.run(native.built("feature_rows", tmp_path), 1, SECONDS)["rows"] >= 2_000


@pytest.mark.debian("cc")
@pytest.mark.parametrize(
    ("program", "right", "wrong"),
    [
        ("scanner", "SCANNER_PADDING 32", "SCANNER_PADDING 1"),
        ("source_positions", "SCANNER_PADDING 32", "SCANNER_PADDING 1"),
        ("source_positions", "rest->length == length && ", ""),
        ("librdkafka", "sizes->key_bytes += (int64_t)message->key_length;", ""),
        ("key_index", "bytes += ends[at] - starts[at];", ""),
        ("feature_rows", "LONGEST_NUMBER + 2 * WORD", "WORD"),
        ("feature_rows", "UINT64_MAX : 0", "INT64_MAX : 0"),
        ("key_index", "index->now.slots[slot] = value;\n            slot = next;", "slot = next;"),
        (
            "librdkafka",
            "at = append_number(at, piece->numbers[record]);",
            "at = append_number(at, piece->numbers[record] / 10);",
        ),
    ],
)
def test_a_fault_in_the_sources_is_detected(tmp_path: Path, program: str, right: str, wrong: str) -> None:
    """The faults are a short padding, an uncounted size, a lost digit and others."""
    texts = {file.name: file.read_text() for file in compiler.HERE.glob("*.[ch]")}
    assert any(right in text for text in texts.values())
    for name, text in texts.items():
        (tmp_path / name).write_text(text.replace(right, wrong))
    with pytest.raises(native.Found, match=r"AddressSanitizer|does not hold"):
        native.run(native.built(program, tmp_path, tmp_path), 1, SECONDS)
