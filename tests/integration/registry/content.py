"""Content that tests ask registries for."""

import io

from model_registry.oci import manifest
from tests.conformance.store import described


class OneWay(io.BytesIO):
    def seekable(self) -> bool:
        return False


CONTENT = bytes(range(256)) * 4096  # 1 MiB
BLOB = described(CONTENT)
EMPTY = described(b"{}")
DATA = manifest.build("application/x.test", EMPTY, (EMPTY,), {})
OTHER = manifest.build("application/x.test", EMPTY, (EMPTY,), {"note": "another one"})
MANIFEST = manifest.describe_manifest(DATA)
