"""A scorer whose model lives on a real MLServer, on the real broker."""

from tests.backends.under_load import UnderLoad


class TestMLServer(UnderLoad):
    """The Open Inference Protocol."""

    kind = "mlserver"
