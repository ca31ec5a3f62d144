"""The benchmark of the decoders: every way decodes to the same numbers, and is measured."""

import math
from pathlib import Path

import pytest

from tests.proofs.bench.decode import CONTENTS, Content, measured


@pytest.mark.parametrize("name", CONTENTS)
def test_every_way_is_measured_and_decodes_to_the_same(name: str, tmp_path: Path) -> None:
    rows = measured(Content(name, tmp_path), 0.001)
    assert [row["way"] for row in rows if row["ours"]] == [
        "json",
        "json-array",
        "json-envelope",
        "float32",
        "avro",
        "protobuf",
    ]
    assert all(math.isfinite(row["us"]) and row["us"] > 0 for row in rows)
