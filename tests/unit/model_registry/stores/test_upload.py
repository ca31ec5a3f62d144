"""The ways to send a blob, best first."""

import pytest

from model_registry.stores.upload import ONE_PUT, WHOLE_BYTES, upload_methods

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("size", "min_bytes", "expected"),
    [
        (0, 0, [ONE_PUT]),
        (1, 0, [ONE_PUT]),
        (2 * MIB, 0, [ONE_PUT, MIB, 256 * KIB]),
        (WHOLE_BYTES, 0, [ONE_PUT, MIB, 256 * KIB]),
        (WHOLE_BYTES + 1, 0, [WHOLE_BYTES + 1, 4 * MIB, MIB, 256 * KIB, ONE_PUT]),
        (100 * MIB, 2 * MIB, [100 * MIB, 4 * MIB, ONE_PUT]),
        (100 * MIB, 5 * MIB, [100 * MIB, ONE_PUT]),
    ],
)
def test_large_requests_come_first_and_end_in_one_put(size: int, min_bytes: int, expected: list[int]) -> None:
    assert upload_methods(size, min_bytes) == expected
