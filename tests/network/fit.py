"""`python -m tests.network.fit FOLDER EPOCHS WORKERS`: trains a network, and prints the digest of its ONNX file."""

import hashlib
import sys
from pathlib import Path

from publisher.errors import Fatal
from tests.network.rows import SIGNATURE, made
from training.recipes.network import Network

ROWS, SEED = 20_000, 3
PARAMETERS = {"dropout": 0.1, "batch": 2048}


def digest(folder: Path, epochs: int, workers: int) -> str:
    """Of the model that these rows give."""
    fitted = Network().fit(made(ROWS), SIGNATURE, PARAMETERS, epochs, folder, seed=SEED, workers=workers)
    return hashlib.sha256(fitted.onnx()).hexdigest()


if __name__ == "__main__":
    try:
        print(digest(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
    except Fatal as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
