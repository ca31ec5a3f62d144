"""A model in ONNX in Triton's Python backend: ONNX Runtime of one thread runs the model.onnx beside this file."""

from pathlib import Path

import onnxruntime as ort
import triton_python_backend_utils as pb


class TritonPythonModel:
    """Numbers in, numbers out; the outputs that a request names."""

    def initialize(self, args):  # noqa: ARG002
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        path = str(Path(__file__).with_name("model.onnx"))
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        inputs = {each.name(): each.as_numpy() for each in request.inputs()}
        names = list(request.requested_output_names())
        results = zip(names, self.session.run(names, inputs), strict=True)
        return pb.InferenceResponse([pb.Tensor(name, tensor) for name, tensor in results])
