import json
import sys

import pytest

from scorer.read.score_rows import NAMES, LabelColumns, ScoreRows
from scorer.scores.decode_record import decode_full_record
from scorer.settings.carry import CarriedField

RECORD = {
    "id": "e1",
    "score": [0.1, 0.9],
    "decision": "late",
    "source": {"topic": "flights", "partition": 3, "offset": 1207},
    "event_ms": 1_740_830_400_000,
    "status": "scored",
    "model": "flight-delay",
    "version": "2.0.0",
    "digest": "sha256:a",
    "role": "champion",
    "region": "eu-west",
    "scored_ms": 1_740_830_400_007,
    "arm": "champion",
    "revision": 2,
    "carried": {"amount": 12.5, "flag": True, "customer": 7},
}
CARRY = [
    CarriedField(("amount",), "amount", "double"),
    CarriedField(("flag",), "flag"),
    CarriedField(("c",), "customer", "string"),
]


def test_rows_are_text_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    record = decode_full_record(json.dumps(RECORD))
    rows = ScoreRows.from_records([record], CARRY, LabelColumns(["late"], [1_740_830_400_000]))
    assert list(rows.names) == [*NAMES, "carried_amount", "carried_flag", "carried_customer", "label", "label_time"]
    (line,) = rows.json_rows()
    (cells,) = rows.csv_rows()
    row = json.loads(line)
    assert row["score"] == [0.1, 0.9]
    assert row["event_time"] == row["label_time"] == "2025-03-01T12:00:00.000+00:00"
    assert (row["carried_amount"], row["carried_flag"], row["carried_customer"]) == (12.5, "true", None)
    by_name = dict(zip(rows.names, cells, strict=True))
    assert (by_name["score"], by_name["fallback"], by_name["source_offset"]) == ("[0.1,0.9]", "", "1207")


def test_no_records_are_no_rows() -> None:
    rows = ScoreRows.from_records([], CARRY, LabelColumns([], []))
    assert len(rows) == 0
    assert list(rows.json_rows()) == []
    assert list(rows.csv_rows()) == []
