"""Settings that name no more than they must."""

from pathlib import Path

import pytest

from scorer.settings import Settings, load


@pytest.fixture
def minimal(tmp_path: Path) -> Settings:
    """Of a scorer `m` with the broker `broker:9092`."""
    (tmp_path / "scorer.yaml").write_text(
        'name: m\nkafka: {bootstrap_servers: "broker:9092"}\ninput: {topics: [in]}\noutput: {topic: out}\n'
        "model: {source: oci:./registry/m}\n"
    )
    return load(tmp_path / "scorer.yaml").settings
