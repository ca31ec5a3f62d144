"""What protoc has made of our Protobuf schemas is what it makes of them today. To make it again:

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


def compiled(kept: Path, text: str, folder: Path) -> FileDescriptorSet:
    """What protoc makes of a schema, with the files that it imports. The file has the name of the descriptor set."""
    source, made = folder / f"{kept.stem}.proto", folder / "made"
    source.write_text(text)
    with as_file(files("grpc_tools") / "_proto") as known:
        options = [f"-I{folder}", f"-I{known}", "--include_imports", f"--descriptor_set_out={made}"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, str(source)], check=True)
    return FileDescriptorSet.FromString(made.read_bytes())


@pytest.mark.parametrize("kept", SETS, ids=lambda path: path.stem)
def test_a_descriptor_set_is_what_protoc_makes_of_the_schema(kept: Path, tmp_path: Path) -> None:
    assert FileDescriptorSet.FromString(kept.read_bytes()) == compiled(kept, SETS[kept], tmp_path)


def test_the_schema_with_carried_fields_is_described_as_protoc_does(tmp_path: Path) -> None:
    carry = tuple(CarriedField.read({"path": f"f.{type_}", "as": f"a_{type_}", "type": type_}) for type_ in TYPES)
    ours = described(carry)
    theirs = compiled(Path("score.binpb"), schema.protobuf(carry), tmp_path)
    for set_ in (ours, theirs):
        for field in (field for message in set_.file[-1].message_type for field in message.field):
            field.ClearField("json_name")  # which protoc tells though it follows from the name
    told = [{message.name: message for message in set_.file[-1].message_type} for set_ in (ours, theirs)]
    assert told[0] == told[1]


if __name__ == "__main__":
    import tempfile

    for kept, text in SETS.items():
        with tempfile.TemporaryDirectory() as folder:
            kept.write_bytes(compiled(kept, text, Path(folder)).SerializeToString(deterministic=True))
