"""What stands in no log line."""

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from publisher.runtime import logs
from tests.support.canary import URL, seen_in


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Capture the log, one JSON object a line, and restore the root logger afterwards."""
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure({"scorer": "n.a"})
    yield stream
    root.handlers[:], root.level = handlers, level


def test_credentials_of_urls_are_masked_in_messages_arguments_and_tracebacks(written: io.StringIO) -> None:
    log = logging.getLogger("library")
    log.warning("cannot reach %s, retrying", URL)
    try:
        raise OSError(f"no route to {URL}")
    except OSError:
        log.exception("failed at %s", URL)
    first, second = map(json.loads, written.getvalue().splitlines())
    assert first["message"] == "cannot reach http://***@127.0.0.1:1/path, retrying"
    assert "no route to http://***@127.0.0.1:1/path" in second["exc_info"]
    assert seen_in(written.getvalue()) == []
