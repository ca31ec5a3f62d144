"""The connection to model servers."""

from pathlib import Path

import pytest
import trustme

from scorer.backends.base import BackendMissing
from scorer.backends.remote.remote_model import connect
from scorer.settings.model import ModelSettings


def test_a_similar_file_is_suggested_if_a_tls_file_was_renamed_after_the_settings_were_read(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    tls = {"enabled": True, "ca_file": path}
    settings = ModelSettings.model_validate({"source": "oci:.", "endpoints": ["127.0.0.1:1"], "server_tls": tls})
    renamed = path.rename(tmp_path / "ca-new.pem")
    with pytest.raises(BackendMissing, match="cannot read") as raised:
        connect(settings)
    assert raised.value.hint == f"did you mean {str(renamed)!r}?"
