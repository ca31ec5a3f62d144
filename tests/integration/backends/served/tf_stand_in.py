"""A stand-in for TensorFlow Serving's model server: real SavedModels, run by TensorFlow, behind its two gRPC services.

`BEHAVIOURS.md` beside it lists the behaviours of the real server that it has, with their sources. It shares no code with the
product: messages are those of the package tensorflow-serving-api. `tf_stand_in.py PORT`; the file that SLOW_FILE names holds
the seconds that every request takes, a = -666 takes for ever.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import tensorflow as tf
from google.protobuf.any_pb2 import Any as Packed
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

HANGS = -666.0
POLL_SECONDS = 1.0  # --file_system_poll_wait_seconds
Status = get_model_status_pb2.ModelVersionStatus
SPECIFIC = "specific"


class Refused(Exception):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code


class Servable:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = Status.START
        self.error = ""
        self.model: Any = None
        self.signatures: Any = None

    def load(self) -> None:
        """START, LOADING, then AVAILABLE, or END with the error."""
        self.state = Status.LOADING
        try:
            stored = saved_model_pb2.SavedModel.FromString((self.folder / "saved_model.pb").read_bytes())
            self.signatures = stored.meta_graphs[0].signature_def
            self.model = tf.saved_model.load(str(self.folder))
            self.state = Status.AVAILABLE
        except Exception as error:  # noqa: BLE001 - whatever TensorFlow has to say
            self.error, self.state = str(error) or type(error).__name__, Status.END

    def unload(self) -> None:
        self.state = Status.UNLOADING
        self.model, self.state = None, Status.END


class Core:
    """The configured models and their versions."""

    def __init__(self) -> None:
        self.configs: dict[str, Any] = {}
        self.servables: dict[str, dict[int, Servable]] = {}
        self.lock = threading.RLock()

    def reload(self, configs: dict[str, Any]) -> None:
        """The configuration is replaced whole; returns when what is aspired has been tried."""
        with self.lock:
            for name in self.configs.keys() - configs.keys():
                self.aspire(name, {})
            self.configs = configs
        self.poll()

    def poll(self) -> None:
        """What the file-system source does: look for versions, aspire those that the policy names."""
        with self.lock:
            for name, config in self.configs.items():
                base = Path(config.base_path)
                numbers = sorted(int(p.name) for p in base.iterdir() if p.name.isdecimal()) if base.is_dir() else []
                policy = config.model_version_policy
                if policy.WhichOneof("policy_choice") == SPECIFIC:
                    numbers = [number for number in numbers if number in policy.specific.versions]
                elif policy.WhichOneof("policy_choice") != "all":
                    numbers = numbers[-(policy.latest.num_versions or 1) :]
                self.aspire(name, {number: base / str(number) for number in numbers})

    def aspire(self, name: str, aspired: dict[int, Path]) -> None:
        """Load what is new before anything is unloaded (the availability-preserving policy)."""
        have = self.servables.setdefault(name, {})
        for number, folder in aspired.items():
            if number not in have or (have[number].state == Status.END and not have[number].error):
                have[number] = Servable(folder)
                have[number].load()
        for number, servable in have.items():
            if number not in aspired and servable.state == Status.AVAILABLE:
                servable.unload()

    def find(self, spec: Any) -> tuple[int, Servable]:
        """The version that a request means. Raises Refused."""
        if not spec.name:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "ModelSpec has no name specified.")
        have = {n: s for n, s in self.servables.get(spec.name, {}).items() if s.state == Status.AVAILABLE}
        choice = spec.WhichOneof("version_choice")
        if choice == "version_label":
            labels = self.configs[spec.name].version_labels if spec.name in self.configs else {}
            if spec.version_label not in labels:
                details = f"Unrecognized servable version label: {spec.version_label}"
                raise Refused(grpc.StatusCode.INVALID_ARGUMENT, details)
            number = labels[spec.version_label]
        else:
            number = spec.version.value if choice == "version" else max(have, default=0)
        if number not in have:
            raise Refused(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: Specific({spec.name}, {number})")
        return number, have[number]


@contextmanager
def statuses(context: grpc.ServicerContext) -> Iterator[None]:
    """TensorFlow's errors as gRPC statuses with the same code."""
    try:
        yield
    except Refused as error:
        context.abort(error.code, str(error))
    except tf.errors.OpError as error:
        codes = {code.value[0]: code for code in grpc.StatusCode}
        context.abort(codes[error.error_code], error.message)


class Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, core: Core) -> None:
        self.core = core

    def Predict(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service's name
        with statuses(context):
            number, servable = self.core.find(request.model_spec)
            slow = Path(os.environ["SLOW_FILE"])
            time.sleep(float(slow.read_text()) if slow.is_file() else 0)
            name = request.model_spec.signature_name or "serving_default"
            if name not in servable.signatures:
                raise Refused(grpc.StatusCode.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
            outputs = self.run(servable, name, request)
        reply = predict_pb2.PredictResponse()
        reply.model_spec.name, reply.model_spec.signature_name = request.model_spec.name, name
        reply.model_spec.version.value = number
        for output in request.output_filter or outputs:
            reply.outputs[output].CopyFrom(tf.make_tensor_proto(outputs[output]))
            as_field(reply.outputs[output])
        return reply

    def run(self, servable: Servable, name: str, request: Any) -> Any:
        """The signature's outputs. Raises Refused where names differ."""
        stated = servable.signatures[name]
        if set(request.inputs) != set(stated.inputs):
            details = f"input size does not match signature: {len(request.inputs)}!={len(stated.inputs)}"
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, details)
        if unknown := set(request.output_filter) - set(stated.outputs):
            details = f"output tensor alias not found in signature: {sorted(unknown)[0]}"
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, details)
        inputs = {k: tf.constant(tf.make_ndarray(v)) for k, v in request.inputs.items()}
        if (inputs["x"].numpy() == HANGS).any():
            time.sleep(5)
        return servable.model.signatures[name](**inputs)

    def GetModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        with statuses(context):
            number, servable = self.core.find(request.model_spec)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, signature in servable.signatures.items():
            signatures.signature_def[name].CopyFrom(signature)
        reply = get_model_metadata_pb2.GetModelMetadataResponse()
        reply.model_spec.name = request.model_spec.name
        reply.model_spec.version.value = number
        packed = Packed()
        packed.Pack(signatures)
        reply.metadata["signature_def"].CopyFrom(packed)
        return reply


class Models(model_service_pb2_grpc.ModelServiceServicer):
    def __init__(self, core: Core) -> None:
        self.core = core

    def GetModelStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        spec = request.model_spec
        have = self.core.servables.get(spec.name, {})
        if spec.HasField("version"):
            have = {n: s for n, s in have.items() if n == spec.version.value}
        if not have:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Could not find any versions of model {spec.name}")
        reply = get_model_status_pb2.GetModelStatusResponse()
        for number, servable in have.items():
            status = reply.model_version_status.add(version=number, state=servable.state)
            if servable.error:
                status.status.error_code, status.status.error_message = 2, servable.error
        return reply

    def HandleReloadConfigRequest(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.config.WhichOneof("config") != "model_config_list":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Unexpected config type")
        self.core.reload({config.name: config for config in request.config.model_config_list.config})
        return model_management_pb2.ReloadConfigResponse()


def as_field(proto: Any) -> None:
    """Numbers in the typed field, as the real server sends outputs by default."""
    if proto.tensor_content and proto.dtype == tf.float32.as_datatype_enum:
        proto.float_val.extend(tf.make_ndarray(proto).ravel().tolist())
        proto.ClearField("tensor_content")


def main(port: int) -> None:
    core = Core()
    server = grpc.server(futures.ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Prediction(core), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(Models(core), server)
    if server.add_insecure_port(f"127.0.0.1:{port}") != port:
        sys.exit(f"port {port} is taken")
    server.start()
    while True:
        time.sleep(POLL_SECONDS)
        core.poll()


if __name__ == "__main__":
    main(int(sys.argv[1]))
