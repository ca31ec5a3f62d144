"""A model version as a folder, read, pushed, pulled and checked. See `folder`."""

from model_registry.package.folder import (
    GOLDEN,
    MODEL,
    SIGNATURE,
    Package,
    content,
    find_model,
    pull,
    push,
    read,
    read_signature,
    signature_of,
    verify,
    write,
)
from model_registry.package.golden import Golden

__all__ = [
    "GOLDEN",
    "MODEL",
    "SIGNATURE",
    "Golden",
    "Package",
    "content",
    "find_model",
    "pull",
    "push",
    "read",
    "read_signature",
    "signature_of",
    "verify",
    "write",
]
