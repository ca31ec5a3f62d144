"""Registration of the schemas of written records."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from model_registry.package.signature import InputField, Output, Signature, TensorInput
from publisher.runtime.dependency_wait import DependencyUnavailable
from scorer.backends.base import ModelRefused
from scorer.features.version_encoder import create_feature_encoder
from scorer.scores.schema_registration import RegistrationDenied, SchemaRejected, register_header
from scorer.settings.input import SchemaRegistrySettings
from tests.unit.scorer.minimal import minimal


@contextmanager
def registry(status: int) -> Iterator[SchemaRegistrySettings]:
    """Run a schema registry that answers each request with this status."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = b'{"error_code": 1, "message": "no", "id": 7}'
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        yield SchemaRegistrySettings.model_validate({"url": url, "extra": {"max.retries": 0}})
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (408, DependencyUnavailable),
        (429, DependencyUnavailable),
        (503, DependencyUnavailable),
        (409, SchemaRejected),
        (401, RegistrationDenied),
        (403, RegistrationDenied),
    ],
)
def test_only_a_rejection_of_the_schema_itself_refuses_it(status: int, error: type[Exception]) -> None:
    with registry(status) as settings, pytest.raises(error) as raised:
        register_header(settings, f"log{status}", "avro", '"string"', "the feature log")
    assert raised.type is error


@pytest.mark.parametrize(("status", "error"), [(401, DependencyUnavailable), (403, DependencyUnavailable), (409, ModelRefused)])
def test_a_version_is_refused_for_its_schema_but_waits_for_the_credentials_of_the_feature_log(
    status: int, error: type[Exception]
) -> None:
    fields = (InputField("a", "float32"),)
    signature = Signature((TensorInput("x", "float32", fields),), (Output(None, "y"),))
    with registry(status) as registry_settings:
        settings = minimal(
            features={"topic": f"denied{status}", "format": "avro"},
            schema_registry={"url": registry_settings.url, "extra": {"max.retries": 0}},
        )
        with pytest.raises(error, match="the schema of the feature log"):
            create_feature_encoder(settings, signature)


def test_the_header_has_the_id_of_the_schema() -> None:
    with registry(200) as settings:
        assert register_header(settings, "log", "avro", '"string"', "the feature log") == b"\0\0\0\0\7"
