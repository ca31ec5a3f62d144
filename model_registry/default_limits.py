"""The default limits of a scorer for model versions from a registry; the scorer's configuration replaces them."""

MAX_BYTES = 32 << 30
"""The largest size of all versions in the cache on disk together, in bytes."""
MAX_VERSION_BYTES = 8 << 30
"""The largest size of the files of one version together, in bytes."""
DEFAULT_DOMAINS = ("com.microsoft",)
"""Operator domains that a model may use besides ONNX's own. Every build of ONNX Runtime has the operators of these domains."""
