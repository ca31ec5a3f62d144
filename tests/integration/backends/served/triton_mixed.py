"""The conformance suite's model for Triton's Python backend: y = factor * (a + b) + n, t = s, pair = x; n must be 0 to 3.

a = -666 takes for ever; the file that SLOW_FILE names holds the seconds that every request takes.
"""

import json
import os
import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb

HANGS = -666.0


class TritonPythonModel:
    """The configuration of the model contains `factor`."""

    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.factor = np.float32(parameters["factor"]["string_value"])

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x, n, s = (pb.get_input_tensor_by_name(request, name).as_numpy() for name in ("x", "n", "s"))
        slow = Path(os.environ["SLOW_FILE"])
        time.sleep(float(slow.read_text()) if slow.is_file() else 0)
        if (x == HANGS).any():
            time.sleep(5)
        if ((n < 0) | (n > 3)).any():
            return pb.InferenceResponse(error=pb.TritonError("n is not 0 to 3"))
        y = (self.factor * x.sum(axis=1, keepdims=True) + n).astype(np.float32)
        return pb.InferenceResponse([pb.Tensor("y", y), pb.Tensor("t", s), pb.Tensor("pair", x)])
