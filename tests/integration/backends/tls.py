"""A real TLS gRPC server in front of a model server: terminates TLS, asks clients for a certificate, passes messages on."""

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from tests.integration.security.certificates import HOST, Certificates

FORWARD_SECONDS = 10.0


class _Forward(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def service(self, details: Any) -> Any:
        call = self._channel.unary_unary(details.method)

        def forward(request: bytes, context: Any) -> bytes:
            try:
                reply: bytes = call(request, timeout=min(context.time_remaining() or FORWARD_SECONDS, FORWARD_SECONDS))
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())
            return reply

        return grpc.unary_unary_rpc_method_handler(forward)


@contextmanager
def behind_tls(address: str, folder: Path) -> Iterator[tuple[str, Certificates]]:
    """The address with TLS of the server at `address`, and the files that a client needs."""
    files = Certificates(folder)
    pair, ca = (files.server.key.read_bytes(), files.server.certificate.read_bytes()), files.ca.read_bytes()
    credentials = grpc.ssl_server_credentials([pair], ca, require_client_auth=True)
    with grpc.insecure_channel(address) as channel:
        front = grpc.server(futures.ThreadPoolExecutor(8), handlers=[_Forward(channel)])
        port = front.add_secure_port(f"{HOST}:0", credentials)
        front.start()
        try:
            yield f"{HOST}:{port}", files
        finally:
            front.stop(None).wait()
