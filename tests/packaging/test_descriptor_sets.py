"""The checked-in descriptor sets are those that protoc compiles from our Protobuf schemas. To write them:

python -m tests.packaging.test_descriptor_sets
"""

import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from scorer.scores import schema
from scorer.scores.protobuf_record import described
from scorer.settings.carry import TYPES, CarriedField
from tests.support.environment import ROOT

SERVERS = ROOT / "scorer" / "backends" / "remote"
SETS = {
    ROOT / "scorer" / "scores" / "score.binpb": schema.protobuf(),
    **{path.with_suffix(".binpb"): path.read_text() for path in SERVERS.glob("*.proto")},
}
"""Each descriptor set, and the schema that it describes."""


def compiled(path: Path, text: str, folder: Path) -> FileDescriptorSet:
    """Compile a schema with protoc, including the files that it imports, under the file name of the descriptor set."""
    source, output = folder / f"{path.stem}.proto", folder / "made"
    source.write_text(text)
    with as_file(files("grpc_tools") / "_proto") as includes:
        options = [f"-I{folder}", f"-I{includes}", "--include_imports", f"--descriptor_set_out={output}"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, str(source)], check=True)
    return FileDescriptorSet.FromString(output.read_bytes())


@pytest.mark.parametrize("path", SETS, ids=lambda path: path.stem)
def test_a_descriptor_set_is_the_output_of_protoc_for_the_schema(path: Path, tmp_path: Path) -> None:
    assert FileDescriptorSet.FromString(path.read_bytes()) == compiled(path, SETS[path], tmp_path)


def test_the_schema_with_carried_fields_is_described_as_protoc_does(tmp_path: Path) -> None:
    carry = tuple(CarriedField.read({"path": f"f.{type_}", "as": f"a_{type_}", "type": type_}) for type_ in TYPES)
    ours = described(carry)
    theirs = compiled(Path("score.binpb"), schema.protobuf(carry), tmp_path)
    for set_ in (ours, theirs):
        for field in (field for message in set_.file[-1].message_type for field in message.field):
            field.ClearField("json_name")  # which protoc writes although it follows from the name
    messages = [{message.name: message for message in set_.file[-1].message_type} for set_ in (ours, theirs)]
    assert messages[0] == messages[1]


if __name__ == "__main__":
    import tempfile

    for path, text in SETS.items():
        with tempfile.TemporaryDirectory() as folder:
            path.write_bytes(compiled(path, text, Path(folder)).SerializeToString(deterministic=True))
