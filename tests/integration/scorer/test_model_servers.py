"""A scorer whose model lives on a real MLServer, on the real broker."""

from pathlib import Path

from tests.integration.backends.servers import ModelServer
from tests.integration.backends.tls import behind_tls
from tests.integration.backends.under_load import UnderLoad
from tests.integration.scorer.rig import Rig, events, until


class TestMLServer(UnderLoad):
    kind = "mlserver"

    def test_a_server_with_tls_is_asked_by_a_scorer_with_a_certificate_and_by_no_other(
        self, rig: Rig, server: ModelServer, tmp_path: Path
    ) -> None:
        with behind_tls(server.address, tmp_path) as (address, files):
            client_identity = {"certificate_file": str(files.client.certificate), "key_file": str(files.client.key)}
            tls = {"enabled": True, "ca_file": str(files.ca)}
            rig.configure(model={"endpoints": [address], "load_seconds": 1, "server_tls": tls})
            assert "no server has the version" in rig.run("scorer", "check", "scorer.yaml", code=1).stderr
            rig.configure(model={"server_tls": {**tls, **client_identity, "ca_file": str(files.foreign_ca)}})
            assert "CERTIFICATE_VERIFY_FAILED" in rig.run("scorer", "check", "scorer.yaml", code=1).stderr

            rig.configure(model={"load_seconds": 60, "server_tls": {**tls, **client_identity}})
            scorer = rig.start().ready()
            rig.emit(events(50))
            until(lambda: rig.answered() == 50, "the scores")
            assert scorer.stop() == 0
