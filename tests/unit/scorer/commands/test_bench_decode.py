"""The benchmark of the decoders: every way decodes to the same numbers, and is measured."""

import math
from pathlib import Path

import pytest

from tests.proofs.bench.contents import FORMATS
from tests.proofs.bench.decode import CONTENTS, measured


@pytest.mark.parametrize("name", CONTENTS)
def test_every_way_is_measured_and_decodes_to_the_same(name: str, tmp_path: Path) -> None:
    rows = measured(name, tmp_path, 0.001)
    assert [row["way"] for row in rows if row["ours"]] == list(FORMATS)
    assert all(math.isfinite(row["us"]) and row["us"] > 0 for row in rows)
