"""The conformance suite on a stand-in for TensorFlow Serving that runs real SavedModels; see served/BEHAVIOURS.md."""

import json

import grpc

from scorer.backends.base import Backend, Model
from scorer.backends.remote.remote_model import unary_method
from scorer.backends.remote.tf_codec import M
from tests.conformance.backend import Place, same
from tests.conformance.remote_backend import RemoteConformance
from tests.integration.backends import models
from tests.integration.backends.servers import ModelServer
from tests.integration.backends.under_load import UnderLoad


class TestTensorFlowServing(RemoteConformance):
    kind = "tf-serving"

    def named(self, keeper: Model) -> dict[str, str]:
        target = keeper.flight.remote.target  # type: ignore[attr-defined]
        return {"model": target.parent.name, "version": target.name}

    def test_a_label_is_followed_where_the_fleet_keeps_it(self, place: Place, backend: Backend, server: ModelServer) -> None:
        keeper = backend.open(place.package(17.0, output=models.OUTPUTS))
        served = self.named(keeper)
        assign_label(server, served["model"], int(served["version"]), "stable")
        folder = models.folder(place.folder / "labelled", 17.0, output=models.OUTPUTS)
        (folder / "remote.json").write_text(json.dumps({"model": served["model"], "label": "stable"}))
        guest = backend.open(models.read(folder))
        inputs = models.tensors(3)
        same(guest.run(inputs), models.expected(inputs, 17.0))
        guest.close()
        keeper.close()


def assign_label(server: ModelServer, model: str, version: int, label: str) -> None:
    """What a fleet's operator does: ReloadConfig with a label for a version that is loaded."""
    request = M["ReloadConfigRequest"]()
    config = request.config.model_config_list.config.add(name=model, base_path=str(server.folder / model))
    config.model_platform = "tensorflow"
    config.model_version_policy.all.SetInParent()
    config.version_labels[label] = version
    with grpc.insecure_channel(server.address) as channel:
        unary_method(channel, "/tensorflow.serving.ModelService/HandleReloadConfigRequest", M["ReloadConfigResponse"])(
            request, timeout=60
        )


class TestTensorFlowServingUnderLoad(UnderLoad):
    kind = "tf-serving"
