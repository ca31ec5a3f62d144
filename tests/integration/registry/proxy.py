"""A small forward proxy for TLS (CONNECT, RFC 9110 9.3.6) that leads every host name to one port of this machine."""

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator


class Proxy(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int) -> None:
        super().__init__(("localhost", 0), _Tunnel)
        self.port = port
        self.heads: list[str] = []
        self.address = f"localhost:{self.server_address[1]}"


class _Tunnel(socketserver.StreamRequestHandler):
    server: Proxy
    rbufsize = 0

    def handle(self) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.rfile.read(1)
        self.server.heads.append(head.decode())
        with socket.create_connection(("localhost", self.server.port)) as target:
            self.wfile.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            back = threading.Thread(target=relay, args=(target, self.connection), daemon=True)
            back.start()
            relay(self.connection, target)
            back.join()


def relay(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def proxying(port: int) -> Iterator[Proxy]:
    with Proxy(port) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
