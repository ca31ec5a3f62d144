"""A real TLS gRPC server in front of a model server: terminates TLS, asks clients for a certificate, passes messages on."""

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import trustme

HOST = "127.0.0.1"
FORWARD_SECONDS = 10.0


@dataclass(frozen=True)
class Files:
    """PEM files: the authority of both sides, another one, and a client's certificate and key."""

    ca: Path
    foreign_ca: Path
    certificate: Path
    key: Path


class _Forward(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Every unary call, as bytes, to the server behind."""

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
def behind_tls(address: str, folder: Path) -> Iterator[tuple[str, Files]]:
    """The address with TLS of the server at `address`, and the files that a client needs."""
    ours, foreign = trustme.CA(), trustme.CA()
    files = Files(folder / "ca.pem", folder / "foreign.pem", folder / "client.pem", folder / "client.key")
    ours.cert_pem.write_to_path(str(files.ca))
    foreign.cert_pem.write_to_path(str(files.foreign_ca))
    server, client = ours.issue_cert(HOST), ours.issue_cert("scorer")
    client.cert_chain_pems[0].write_to_path(str(files.certificate))
    client.private_key_pem.write_to_path(str(files.key))
    pair = server.private_key_pem.bytes(), server.cert_chain_pems[0].bytes()
    credentials = grpc.ssl_server_credentials([pair], ours.cert_pem.bytes(), require_client_auth=True)
    with grpc.insecure_channel(address) as channel:
        front = grpc.server(futures.ThreadPoolExecutor(8), handlers=[_Forward(channel)])
        port = front.add_secure_port(f"{HOST}:0", credentials)
        front.start()
        try:
            yield f"{HOST}:{port}", files
        finally:
            front.stop(None).wait()
