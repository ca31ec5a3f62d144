"""A model in ONNX as an MLServer runtime: ONNX Runtime of one thread runs what the settings' `uri` names."""

import onnxruntime as ort
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse
from mlserver.utils import get_model_uri


class Onnx(MLModel):
    """Numbers in, numbers out; the outputs that a request names, or all."""

    async def load(self) -> bool:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        path = await get_model_uri(self._settings)
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        inputs = {one.name: NumpyCodec.decode_input(one) for one in payload.inputs}
        names = [one.name for one in payload.outputs or self._session.get_outputs()]
        results = zip(names, self._session.run(names, inputs), strict=True)
        outputs = [NumpyCodec.encode_output(name, tensor) for name, tensor in results]
        return InferenceResponse(model_name=self.name, outputs=outputs)
