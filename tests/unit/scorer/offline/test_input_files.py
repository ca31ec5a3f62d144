"""Events of a signature with fields of every kind, as JSON lines, as typed rows of Parquet and as texts of CSV."""

import base64
import csv
import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from publisher.errors import Fatal
from scorer.decoding.decoder_factory import create_decoder
from scorer.decoding.types import Decoded
from scorer.offline.file_signature import for_lines, for_objects
from scorer.offline.input_files import open_file
from tests.unit.scorer.minimal import minimal

SETTINGS = minimal(input={"topics": ["in"], "id": "id"})
INPUTS = [
    {"tensor": "i", "dtype": "int64", "fields": ["count"]},
    {"tensor": "u", "dtype": "uint64", "fields": ["big"]},
    {"tensor": "f", "dtype": "float64", "fields": ["amount", {"name": "ratio", "required": False, "default": "nan"}]},
    {"tensor": "b", "dtype": "bool", "fields": ["flag"]},
    {"tensor": "s", "dtype": "string", "fields": [{"name": "text", "required": False, "default": "none"}]},
    {"tensor": "v", "dtype": "float32", "fields": [{"name": "vector", "array": True, "length": 3}]},
    {"tensor": "m", "dtype": "float32", "shape": [2, 2], "fields": [{"name": "matrix", "array": True}]},
    {"tensor": "t", "dtype": "int64", "shape": [-1], "pad": 0, "fields": [{"name": "ids", "array": True, "max_length": 9}]},
    {"tensor": "r", "dtype": "uint8", "fields": [{"name": "raw", "bytes": True, "length": 2}]},
    {"tensor": "p", "dtype": "float32", "fields": [{"name": "age", "path": "customer.age"}]},
]
SIGNATURE = parse_signature(json.dumps({"inputs": INPUTS, "output": {"tensor": "y"}}))


def event(number: int, **changed: Any) -> dict[str, Any]:
    values = {
        "id": f"e{number}",
        "count": (1 << 62) + number,
        "big": (1 << 64) - 1 - number,
        "amount": number / 7,
        "ratio": None if number % 2 else 1e-9 * number,
        "flag": number % 3 == 0,
        "text": None if number == 1 else f'"{number}", é',
        "vector": [number * 0.1, -0.0, 3e38],
        "matrix": [[1.5, 2], [3, number]],
        "ids": list(range(number % 4)),
        "raw": base64.b64encode(bytes([number, 255])).decode(),
        "customer": {"age": number + 0.25},
    }
    return values | changed


EVENTS = [*(event(number) for number in range(20)), event(20, count=None), event(21, vector=[1.0]), event(22, customer=None)]
TYPES = {
    "big": pyarrow.uint64(),
    "vector": pyarrow.list_(pyarrow.float64()),
    "matrix": pyarrow.list_(pyarrow.list_(pyarrow.float64())),
    "ids": pyarrow.large_list(pyarrow.int32()),
}


def decoded(path: Path, signature: Signature = SIGNATURE) -> Decoded:
    """Decode the rows of a file as `scorer score` does."""
    with open_file(path, signature, SETTINGS) as source:
        events = [event for rows, _ in source.read() for event in rows.events]
        if source.fitted is not None:
            return create_decoder(for_objects(SETTINGS), source.fitted.signature).decode(events)
        return create_decoder(for_lines(SETTINGS, signature), signature).decode(events)


def write_lines(folder: Path) -> Path:
    path = folder / "events.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    return path


def write_parquet(folder: Path) -> Path:
    columns = {name: pyarrow.array([event[name] for event in EVENTS], TYPES.get(name)) for name in EVENTS[0]}
    columns["raw"] = pyarrow.array([base64.b64decode(event["raw"]) for event in EVENTS])
    parquet.write_table(pyarrow.table(columns), folder / "events.parquet", row_group_size=7)
    return folder / "events.parquet"


def write_csv(folder: Path) -> Path:
    with (folder / "events.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(EVENTS[0])
        for row in EVENTS:
            writer.writerow(
                "" if value is None else value if isinstance(value, str) else json.dumps(value) for value in row.values()
            )
    return folder / "events.csv"


@pytest.mark.parametrize("write", [write_parquet, write_csv])
def test_rows_are_decoded_to_the_tensors_of_their_events(write: Any, tmp_path: Path) -> None:
    expected = decoded(write_lines(tmp_path))
    actual = decoded(write(tmp_path))
    assert actual.rows == expected.rows == list(range(20))
    assert list(actual.ids) == list(expected.ids)
    assert {row: (p.reason, str(p)) for row, p in actual.rejected.items()} == {
        row: (p.reason, str(p)) for row, p in expected.rejected.items()
    }
    assert actual.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        assert actual.tensors[name].dtype == tensor.dtype
        for actual_row, expected_row in zip(actual.tensors[name], tensor, strict=True):
            np.testing.assert_array_equal(actual_row, expected_row)


def test_only_invalid_rows_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xef\xbb\xbfa,b\n1,2\n\n1,2,3\n4\n" + b'"' + b"x" * 3_000_000 + b'",1\n5,6\n')
    signature = parse_signature('{"inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a"]}], "output": {"tensor": "y"}}')
    with open_file(path, signature, SETTINGS) as source:
        chunks = [rows for rows, _ in source.read()]
    assert [event for rows in chunks for event in rows.events] == [
        b'{"a":1}',
        b'{"a":1}',
        b'{"a":4}',
        b'{"a":null}',
        b'{"a":5}',
    ]
    (rows,) = (rows for rows in chunks if rows.events)
    assert {row: str(poison).partition(" (")[0] for row, poison in rows.invalid.items()} == {
        1: "the row has 3 cells, but the header has 2 columns",
        3: "not CSV: field larger than field limit",
    }


def test_columns_with_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,a\n")
    with pytest.raises(Fatal, match="several columns 'a'"), open_file(tmp_path / "rows.csv", SIGNATURE, SETTINGS):
        pass


@pytest.mark.parametrize(("suffix", "text"), [("csv", "a\n1\n2\n"), ("jsonl", '{"a":1}\n{"a":2}\n')])
def test_a_named_pipe_is_read_to_its_end(tmp_path: Path, suffix: str, text: str) -> None:
    path = tmp_path / f"events.{suffix}"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=[text])
    writer.start()
    inputs = [{"tensor": "x", "dtype": "float32", "fields": ["a"]}]
    signature = parse_signature(json.dumps({"inputs": inputs, "output": {"tensor": "y"}}))
    with open_file(path, signature, SETTINGS) as source:
        chunks = [(list(rows.events), progress.total) for rows, progress in source.read()]
    writer.join()
    assert chunks == [([], None), ([b'{"a":1}', b'{"a":2}'], None)]
