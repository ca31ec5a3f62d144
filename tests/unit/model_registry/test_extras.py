import json
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from model_registry.extras import command_for


def installed(folder: Path, origin: str | None) -> Distribution:
    (folder / "METADATA").write_text("Name: scorestream\nVersion: 0.1.0\n")
    if origin is not None:
        (folder / "direct_url.json").write_text(origin)
    return Distribution.at(folder)


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": "file:///srv/clone", "dir_info": {"editable": True}}, "pip install -e '/srv/clone[grpc,avro]'"),
        ({"url": "file:///srv/a%20b/clone", "dir_info": {}}, "pip install '/srv/a b/clone[grpc,avro]'"),
        ({"url": "file:///tmp/scorestream.whl", "archive_info": {}}, "pip install 'scorestream[grpc,avro]'"),
        ({"url": "https://example.org/a.git", "vcs_info": {}}, "pip install 'scorestream[grpc,avro]'"),
        ([], "pip install 'scorestream[grpc,avro]'"),
        (None, "pip install 'scorestream[grpc,avro]'"),
    ],
)
def test_an_extra_is_installed_from_the_source_of_the_distribution(tmp_path: Path, origin: object, command: str) -> None:
    text = None if origin is None else json.dumps(origin)
    assert command_for(installed(tmp_path, text), "grpc", "avro") == command


def test_a_source_tree_that_is_not_installed_names_the_distribution() -> None:
    assert command_for(None, "cpu") == "pip install 'scorestream[cpu]'"
