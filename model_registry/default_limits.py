"""How much a scorer takes from a registry, where its configuration does not say."""

MAX_BYTES = 32 << 30
"""Of all versions that are kept on disk, in bytes."""
MAX_VERSION_BYTES = 8 << 30
"""Of the files of one version."""
DEFAULT_DOMAINS = ("com.microsoft",)
"""Operator domains that a model may use beside ONNX's own: those of every build of ONNX Runtime."""
