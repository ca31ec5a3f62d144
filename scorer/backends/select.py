"""Selection of the backend that `model.backend` names. The libraries of a backend are imported only if it is selected."""

from scorer.backends.base import Backend
from scorer.settings.model import ModelSettings


def backend_for(model: ModelSettings) -> Backend:
    """Create the configured backend. Raises BackendMissing if its library, its device or a setting is missing."""
    if model.backend == "tf-serving":
        from scorer.backends.remote.tf_serving import TensorFlowServing

        return TensorFlowServing(model)
    if model.backend == "open-inference":
        from scorer.backends.remote.open_inference import OpenInference

        return OpenInference(model)
    from scorer.backends.onnx.onnx_runtime import OnnxRuntime

    return OnnxRuntime(model)
