"""What is written in each format is the same content: the scorer's decoders find its ids and numbers."""

from pathlib import Path

import numpy as np
import pytest

from scorer.events import formats
from tests.proofs.bench.contents import FORMATS, contents
from tests.proofs.bench.workload import POOL, Workload


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_has_the_same_content(format_: str, tmp_path: Path) -> None:
    workload = Workload(5, "minutes_{}", 3)
    written = contents(workload, format_, tmp_path)
    decoded = formats.decoder(written.settings(), workload.signature).decode(list(written.events(POOL + 1)))
    assert not decoded.rejected
    rows = np.array(workload.rows(), np.float32)
    assert np.array_equal(decoded.tensors["x"], np.concatenate([rows, rows[:1]]))
    named = [str(number) for number in range(POOL + 1)]
    assert [str(one) for one in decoded.ids] == (named if "id" in written.input else ["None"] * (POOL + 1))
