import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow
import pytest

from publisher.errors import Fatal
from scorer.dead_letters.reasons import Poison, Reason
from scorer.evaluation.score_events import EventAnswers
from scorer.offline.input_files import LineRows
from scorer.offline.score_file import ADDED, ScoredFileRows

LINES = [b'{"a": 1.10}', b"{ }", b'{"score": 5, "b": 1}', b'{"c": "\xff"}', b"[1]", b'{"d": 2 }']


def scored(prefix: str = "") -> ScoredFileRows:
    """Return rows of which the last one is rejected, with the score 0.50 for each of the others."""
    answers = EventAnswers(len(LINES))
    answers.scores[:-1] = [b"0.50"] * (len(LINES) - 1)
    answers.decisions[:-1] = ["high"] * (len(LINES) - 1)
    answers.rejected[len(LINES) - 1] = Poison(Reason.WRONG_TYPE, "half \ud800 of a pair")
    added: Sequence[str] = [prefix + name for name in ADDED]
    return ScoredFileRows(LineRows(LINES), ["event"], added, answers, pyarrow.float64())


def test_json_lines_keep_their_text_and_get_the_score() -> None:
    lines = list(scored().json_rows())
    assert lines[0] == b'{"a": 1.10,"score":0.50,"decision":"high","status":"scored","error":null}'
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    result = {"score": 0.5, "decision": "high", "status": "scored", "error": None}
    assert rows[1:5] == [result, {"b": 1} | result, {"event": '{"c": "\\xff"}'} | result, {"event": "[1]"} | result]
    assert rows[5] == {"d": 2, "score": None, "decision": None, "status": "wrong-type", "error": "half \\ud800 of a pair"}


def test_names_with_a_prefix_leave_fields_of_lines() -> None:
    row = json.loads(list(scored("new_").json_rows())[2])
    assert (row["score"], row["new_score"]) == (5, 0.5)


def test_lines_are_texts_in_csv_and_parquet() -> None:
    cells = list(scored().csv_rows())
    assert cells[0] == ['{"a": 1.10}', "0.50", "high", "scored", ""]
    csv_text = io.StringIO()
    csv.writer(csv_text).writerows(cells)
    batch = scored().record_batch()
    assert batch.column("event").to_pylist() == [row[0] for row in csv.reader(io.StringIO(csv_text.getvalue()))]
    assert batch.column("score").to_pylist() == [0.5] * 5 + [None]


def test_an_integer_that_a_float64_cannot_represent_is_named() -> None:
    answers = EventAnswers(1)
    answers.scores[0] = b"1152921504606846977"
    rows = ScoredFileRows(LineRows(LINES[:1]), ["event"], ADDED, answers, pyarrow.float64())
    with pytest.raises(Fatal, match="no form in Parquet: Integer value 1152921504606846977") as error:
        rows.record_batch()
    assert "--format json" in error.value.hint
    assert json.loads(next(rows.json_rows()))["score"] == (1 << 60) + 1
