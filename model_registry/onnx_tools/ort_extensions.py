"""Finds the library onnxruntime-extensions for models that use its operators (tokenizers, strings, images).

The module `safety` decides from the allowed domains whether a model may use these operators.
"""

from model_registry.errors import Refused
from model_registry.extras import install_command
from model_registry.onnx_tools.onnx_reader import OnnxFile

DOMAINS = ("ai.onnx.contrib", "com.microsoft.extensions")


def library(model: OnnxFile) -> str | None:
    """Return the path of the library onnxruntime-extensions; None if the model does not need it.

    Raises Refused if the model needs the library and it is not installed.
    """
    needed = sorted((domain, name) for domain, name in model.operators - model.functions if domain in DOMAINS)
    if not needed:
        return None
    try:
        from onnxruntime_extensions import get_library_path
    except ImportError as error:
        domain, name = needed[0]
        fault = f"the model uses the operator {name!r:.100} of domain {domain}, and onnxruntime-extensions is not installed"
        hint = "install it beside ONNX Runtime, also in the scorers' environments"
        raise Refused(f"{fault}: {install_command('extensions')}", hint) from error
    return str(get_library_path())
