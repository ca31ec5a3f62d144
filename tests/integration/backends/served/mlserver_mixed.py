"""The conformance suite's model as an MLServer runtime: y = factor * (a + b) + n, t = s, pair = x; n must be 0 to 3.

a = -666 takes for ever; the file that SLOW_FILE names holds the seconds that every request takes.
"""

import asyncio
import os
from pathlib import Path

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse

HANGS = -666.0


class Mixed(MLModel):
    """The settings of the model contain `factor`."""

    async def load(self) -> bool:
        self._factor = np.float32(self.settings.parameters.extra["factor"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        inputs = {tensor.name: tensor for tensor in payload.inputs}
        x, n = NumpyCodec.decode_input(inputs["x"]), NumpyCodec.decode_input(inputs["n"])
        texts = StringCodec.decode_input(inputs["s"])
        slow = Path(os.environ["SLOW_FILE"])
        await asyncio.sleep(float(slow.read_text()) if slow.is_file() else 0)
        if (x == HANGS).any():
            await asyncio.sleep(600)
        if ((n < 0) | (n > 3)).any():
            raise ValueError("n is not 0 to 3")
        y = (self._factor * x.sum(axis=1, keepdims=True) + n).astype(np.float32)
        outputs = [
            NumpyCodec.encode_output("y", y),
            StringCodec.encode_output("t", texts),
            NumpyCodec.encode_output("pair", x),
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)
