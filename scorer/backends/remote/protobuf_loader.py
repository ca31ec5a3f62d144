"""Loading of the Protobuf messages of model servers from the descriptor set (`.binpb`) beside each `.proto` file.

The messages are in a separate descriptor pool, so that their names do not conflict with the names of an imported TensorFlow.
"""

from importlib.resources import files
from typing import Any

from model_registry.extras import install_command
from scorer.backends.base import BackendMissing

try:
    from google.protobuf import descriptor_pb2, message_factory
except ImportError as error:
    raise BackendMissing("gRPC is not installed", install_command("grpc")) from error


def messages(name: str) -> dict[str, Any]:
    """Return the message classes of the file `name`.proto, by message name without the package."""
    described = descriptor_pb2.FileDescriptorSet.FromString(files(__package__).joinpath(f"{name}.binpb").read_bytes())
    classes = message_factory.GetMessages(described.file)
    return {full_name.rpartition(".")[2]: class_ for full_name, class_ in classes.items()}
