"""`python -m tests backends`: the conformance suite and the faults under load on all four backends: ONNX Runtime, MLServer,
Triton and a stand-in for TensorFlow Serving.

The first run makes the servers' virtual environments in the user's cache (2.3 GB, some minutes). Triton's Python backend needs
a shared libpython of the interpreter's version (Debian: libpython3.11). Arguments go to pytest.
"""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SUITES = (
    HERE / "test_onnx_runtime.py",
    HERE / "test_mlserver.py",
    HERE / "triton_suite.py",
    HERE / "tf_serving_suite.py",
    HERE.parent / "scorer" / "test_model_servers.py",
)

if __name__ == "__main__":
    sys.exit(pytest.main([*map(str, SUITES), "-s", "--durations=0", "--durations-min=5", *sys.argv[1:]]))
