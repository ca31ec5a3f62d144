"""Opens the store of a repository: an OCI layout in a folder, or an OCI registry over HTTP."""

from pathlib import Path

from model_registry.oci.reference import ModelReference
from model_registry.stores.base import DEFAULTS, Store, StoreOptions


def open_store(reference: ModelReference, *, options: StoreOptions = DEFAULTS) -> Store:
    """Return the store of a reference's repository, without connecting to it. The reference's tag and digest are ignored.

    Raises:
        Misconfigured: The options are invalid, or the CA file cannot be read.
    """
    if reference.kind == "oci":
        from model_registry.stores.oci_layout import LayoutStore  # the HTTP client is loaded for registries only

        return LayoutStore(Path(reference.repository))
    from model_registry.stores.oci_registry import RemoteStore

    return RemoteStore(reference, options)
