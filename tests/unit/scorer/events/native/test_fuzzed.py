"""The scanner reads and writes inside its buffers, and an event alone is what it is in company: seconds of the fuzzer."""

from pathlib import Path

import pytest

from scorer.events.native import compiler
from tests.campaigns.fuzz import scanner

SECONDS = 3


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scanner.built(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.debian("cc")
def test_mutated_events_touch_no_byte_beside_the_buffers(sanitized: Path) -> None:
    counts = scanner.run(sanitized, 1, SECONDS)
    assert counts["events"] >= 2_000
    assert 0.2 < counts["certain"] / counts["events"] < 0.8


@pytest.mark.debian("cc")
def test_a_read_beyond_a_buffer_is_found(sanitized: Path, tmp_path: Path) -> None:
    """The scanner is told of a padding that is too short: the sanitizers must see it."""
    assert sanitized.exists()
    for file in compiler.HERE.glob("*.[ch]"):
        (tmp_path / file.name).write_text(file.read_text().replace("SCANNER_PADDING 32", "SCANNER_PADDING 1"))
    with pytest.raises(scanner.Found, match="AddressSanitizer"):
        scanner.run(scanner.built(tmp_path, tmp_path), 1, SECONDS)
