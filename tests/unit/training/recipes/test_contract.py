"""The files between a training and a recipe: rows are read back unchanged, and complete lines of metrics are read."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from model_registry.errors import Refused
from model_registry.package.signature_schema import parse_signature
from tests.unit.training.labelled_rows import SIGNATURE, rows
from training.recipes import contract
from training.recipes.contract import ContractViolation, MetricsTail

ROWS = rows(300, missing=0.1)
VECTORS = parse_signature(
    b"""{"inputs": [
    {"tensor": "v", "dtype": "float32", "fields": [
      {"name": "v", "array": true, "length": 3, "required": false, "default": "nan"}]},
    {"tensor": "w", "dtype": "string", "fields": [{"name": "w", "array": true, "length": 2}], "shape": [1, 2]}],
    "output": {"tensor": "p"}}"""
)


def test_rows_are_read_back_unchanged(tmp_path: Path) -> None:
    digest = contract.write_rows(ROWS, SIGNATURE, tmp_path / "a.parquet")
    result = contract.read_rows(tmp_path / "a.parquet", SIGNATURE)
    assert result.target == ROWS.target
    for name, tensor in ROWS.tensors.items():
        assert result.tensors[name].dtype == tensor.dtype
        assert np.array_equal(result.tensors[name], tensor, equal_nan=tensor.dtype.kind == "f")
    assert (result.outcomes.dtype, result.outcomes.tolist()) == (ROWS.outcomes.dtype, ROWS.outcomes.tolist())
    assert contract.write_rows(ROWS, SIGNATURE, tmp_path / "b.parquet") == digest
    assert contract.write_rows(rows(300, seed=9), SIGNATURE, tmp_path / "c.parquet") != digest


def test_arrays_are_lists_and_are_read_back(tmp_path: Path) -> None:
    vectors = np.array([[1, 2, 3], [np.nan, np.nan, np.nan], [4, np.nan, 6]], np.float32)
    words = np.array([[["a", "b"]], [["", "ü"]], [["c", "d"]]], object)
    three_rows = ROWS.select(np.arange(3))
    stored = type(three_rows)({"v": vectors, "w": words}, three_rows.outcomes, three_rows.places, three_rows.values)
    contract.write_rows(stored, VECTORS, tmp_path / "rows.parquet")
    result = contract.read_rows(tmp_path / "rows.parquet", VECTORS)
    assert np.array_equal(result.tensors["v"], vectors, equal_nan=True)
    assert result.tensors["w"].tolist() == words.tolist()


def test_a_separate_signature_reads_the_same_fields() -> None:
    separate = parse_signature(
        b"""{"inputs": [
        {"tensor": "late", "dtype": "float64", "fields": [{"name": "delay", "required": false, "default": -1.0}]},
        {"tensor": "who", "dtype": "string", "fields": ["carrier"]}], "output": {"tensor": "p"}}"""
    )
    tensors = contract.converted(ROWS.tensors, SIGNATURE, separate)
    delays = ROWS.tensors["x"][:, :1].astype(np.float64)
    assert tensors["late"].tolist() == np.where(np.isnan(delays), -1, delays).tolist()
    assert tensors["who"].tolist() == ROWS.tensors["carrier"].tolist()
    other = parse_signature(b'{"inputs": [{"tensor": "y", "dtype": "float32", "fields": ["gate"]}], "output": {"tensor": "p"}}')
    with pytest.raises(Refused, match="reads field 'gate', but the rows have no such field"):
        contract.converted(ROWS.tensors, SIGNATURE, other)


def test_metrics_are_read_line_by_line_while_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(tmp_path, 9)
    assert tail.new_lines() == []
    path.write_text('{"budget": 1, "auc": 0.5}\n{"budget": 2, "au')
    assert tail.new_lines() == [(1, {"auc": 0.5})]
    with path.open("a") as stream:
        stream.write('c": 0.75}\n\n{"budget": 3, "loss": 1}')
    assert tail.new_lines() == [(2, {"auc": 0.75})]
    assert tail.new_lines(ended=True) == [(3, {"loss": 1.0})]
    assert tail.score("auc") == (2, 0.75)


def test_the_last_line_of_the_largest_budget_counts(tmp_path: Path) -> None:
    lines = [{"budget": 2, "auc": 0.9}, {"budget": 4, "auc": 0.5}, {"budget": 4, "auc": 0.6}, {"budget": 3, "auc": 0.8}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert MetricsTail(tmp_path, 9).score("auc") == (4, 0.6)


def test_metrics_of_a_killed_process_are_not_reported_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"budget": 1, "auc": 0.5}\n{"budget": 2,')
    tail = MetricsTail(tmp_path, 9)
    assert path.read_text() == '{"budget": 1, "auc": 0.5}\n'
    assert tail.new_lines(ended=True) == []
    assert tail.score("auc") == (1, 0.5)


def test_a_file_that_is_written_from_its_start_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"budget": 2, "auc": 0.5}\n')
    tail = MetricsTail(tmp_path, 9)
    path.write_text('{"budget": 4, "auc": 0.9}\n')
    assert tail.new_lines(ended=True) == [(4, {"auc": 0.9})]
    assert tail.score("auc") == (4, 0.9)
    path.write_text('{"budget": 1, "auc": 0.1}')
    assert tail.new_lines(ended=True) == [(1, {"auc": 0.1})]
    assert tail.score("auc") == (1, 0.1)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[" * 60_000,
        b"\xff",
        b'"text"',
        b'{"budget": true, "auc": 1}',
        b'{"budget": 1.5}',
        b'{"auc": 1}',
        b"1" * 9_999,
        b'{"budget": 1, "auc": 1' + b"0" * 400 + b"}",
        b'{"budget": 1, "\\ud800": 1}',
        b'{"budget": 1, "\\u001b[2J": 1}',
    ],
)
def test_no_line_breaks_the_reader(line: bytes) -> None:
    with pytest.raises(ContractViolation, match=r"metrics\.jsonl line 7"):
        contract.parse_line(line, 7, 9)


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_metrics_that_are_not_a_file_are_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(tmp_path, 9)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(ContractViolation, match=r"metrics\.jsonl cannot be read"):
        tail.new_lines()


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    tail = MetricsTail(tmp_path, 9)
    (tmp_path / "metrics.jsonl").write_bytes(b"x" * 70_000)
    with pytest.raises(ContractViolation, match="line 1 has more than 65,536 bytes"):
        tail.new_lines()


def test_a_restarted_trial_keeps_only_the_end_of_a_large_log(tmp_path: Path) -> None:
    trial, log = tmp_path / "trial", tmp_path / "trial" / "log.txt"
    content = contract.Trial(0, 10, False, 1, "auc", "max", None, ROWS.target)

    def start() -> None:
        contract.write_inputs(trial, tmp_path / "rows", SIGNATURE, {}, content, contract.Resources())

    start()
    log.write_bytes(b"short\n")
    start()
    assert log.read_bytes() == b"short\n"
    log.write_bytes(b"x" * contract.KEPT_LOG_BYTES + b"end\n")
    start()
    assert log.stat().st_size == contract.KEPT_LOG_BYTES
    assert log.read_bytes().endswith(b"xend\n")


def test_the_end_of_a_log_has_no_control_characters(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(b"first\n" + b"x" * 9_000 + b"\n\x1b[31mred\x07\xff\nlast\n")
    tail = contract.log_tail(tmp_path)
    assert tail.splitlines()[-2:] == [" [31mred \N{REPLACEMENT CHARACTER}", "last"]
    assert "first" not in tail
