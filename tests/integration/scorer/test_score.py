"""`scorer score`: rows of local files get the scores that a running scorer gives to the same events, bit for bit."""

import json
from pathlib import Path
from typing import Any

import msgspec
import onnx
import pandas
import pyarrow
import pytest
from onnx import TensorProto, helper
from pyarrow import parquet

from tests.integration.scorer.rig import MakeRig, Rig, until
from tests.support import auditor, models

SIGNATURE = {
    "inputs": [
        {
            "tensor": "x",
            "dtype": "float32",
            "fields": [
                "a",
                {"name": "b", "required": False, "default": 7.5},
                {"name": "c", "path": "after.c", "required": False, "default": "nan"},
            ],
        },
        {"tensor": "s", "dtype": "string", "fields": ["kind"]},
    ],
    "output": {"tensor": "y"},
    "labels": ["a", "b", "c"],
}


def text_and_vector(path: Path) -> None:
    """Write a model: y = x * (0.1, 0.3, 1/3) + the number of the text; NaN in x becomes 0."""
    nodes = [
        helper.make_node("IsNaN", ["x"], ["missing"]),
        helper.make_node("Where", ["missing", "zero", "x"], ["known"]),
        helper.make_node("Mul", ["known", "w"], ["weighted"]),
        helper.make_node(
            "LabelEncoder",
            ["s"],
            ["code"],
            domain="ai.onnx.ml",
            keys_strings=["card", "é"],
            values_floats=[0.7, 0.9],
            default_float=0.0,
        ),
        helper.make_node("Add", ["weighted", "code"], ["y"]),
    ]
    constants = [models.constant("w", [[0.1, 0.3, 1 / 3]]), models.constant("zero", 0.0)]
    inputs = [models.tensor("x", TensorProto.FLOAT, "N", 3), models.tensor("s", TensorProto.STRING, "N", 1)]
    graph = helper.make_graph(nodes, "test", inputs, [models.tensor("y", TensorProto.FLOAT, "N", 3)], constants)
    domains = [*models.OPSET, helper.make_opsetid("ai.onnx.ml", 2)]
    onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=8), str(path))


GOLDEN = [{"event": {"a": 1.0, "b": 2.0, "after": {"c": 3.0}, "kind": "card"}, "score": [0.8, 1.3, 1.7], "tolerance": 1e-5}]

LINES = [
    *(b'{"id": "n%d", "a": %d.%d, "b": 1e-%d, "after": {"c": 0.%d1}, "kind": "card"}' % (n, n, n, n, n) for n in range(40)),
    b'{"id": "absent", "a": 0.1, "kind": "other"}',
    '{"id": "null", "a": 16777217, "b": null, "after": null, "kind": "é"}'.encode(),
    b'{"id": "unread", "a": 3, "kind": "card", "note": NaN}',
    b'{"id": "missing", "b": 1, "kind": "card"}',
    b'{"id": "wrong", "a": "1.5", "kind": "card"}',
    b'{"id": "not finite", "a": NaN, "kind": "card"}',
    b'{"id": "beyond", "a": 1e39, "kind": "card"}',
    b'{"id": "nan", "a": 1, "kind": "card", "after": {"c": NaN}}',
    b'{"id": "not utf-8", "a": 1, "kind": "\xff"}',
    b'{"id": "malformed", "a": 1',
    b"[1, 2, 3]",
]


class Scored(msgspec.Struct):
    """The id and the score of a record, whose text is kept."""

    id: str
    score: msgspec.Raw
    decision: str | None
    status: str
    error: str | None = None


Results = dict[str, tuple[bytes | None, str | None, str]]
"""The text of the score, the decision and the status of each event by its id."""


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    rig = make_rig(batching={"max_events": 16})
    rig.push(models.package(rig.folder / "1.0.0", text_and_vector, SIGNATURE, GOLDEN), "1.0.0")
    rig.promote("1.0.0")
    return rig


def from_the_broker(rig: Rig, lines: list[bytes]) -> tuple[Results, list[tuple[str, str]]]:
    """Return the results of a running scorer, and reason and error of each dead letter."""
    rig.create(1)
    rig.start().ready()
    for line in lines:
        rig.produce(line, key=b"k")
    until(lambda: rig.answered() == len(lines), "all answers")
    records = [
        msgspec.json.decode(m.value() or b"", type=Scored) for m in auditor.read(rig.bootstrap_servers, rig.scores_topic)
    ]
    scores = {record.id: (bytes(record.score), record.decision, record.status) for record in records}
    letters = sorted((letter["reason"], letter["error"]) for letter in rig.dead())
    return dict(scores), letters


def test_lines_get_the_scores_of_a_running_scorer(rig: Rig) -> None:
    scores, letters = from_the_broker(rig, LINES)
    assert len(scores) == 44
    (rig.folder / "events.jsonl").write_bytes(b"\n".join(LINES) + b"\n\n")
    completed = rig.run("scorer", "score", "scorer.yaml", "events.jsonl", code=1)
    printed = completed.stdout.splitlines()
    assert len(printed) == len(LINES)
    rows = [json.loads(line) for line in printed]
    offline = {
        row["id"]: (bytes(msgspec.json.decode(line.encode(), type=Scored).score), row["decision"], row["status"])
        for line, row in zip(printed, rows, strict=True)
        if row["status"] == "scored" and "id" in row
    }
    unread = next(row for row in rows if "NaN" in row.get("event", "") and row["status"] == "scored")
    assert json.dumps(unread["score"]) == json.dumps(json.loads(scores["unread"][0] or b""))
    assert offline == {id_: score for id_, score in scores.items() if id_ not in ("unread", "nan")}
    assert sorted((row["status"], row["error"]) for row in rows if row["status"] != "scored") == letters
    assert rows[0]["after"] == {"c": 0.01}
    assert "44 of 51 rows scored with model:1.0.0@sha256:" in completed.stderr
    assert "first: row 44: required field 'a' is missing or null" in completed.stderr

    piped = rig.run("scorer", "score", "scorer.yaml", "-", code=1, stdin=(rig.folder / "events.jsonl").read_bytes())
    assert piped.stdout == completed.stdout
    rig.run("scorer", "score", "scorer.yaml", "events.jsonl", "--output", "scored.parquet", code=1)
    table = parquet.read_table(rig.folder / "scored.parquet")
    assert table.schema.field("score").type == pyarrow.list_(pyarrow.float64())
    assert table.column("score").to_pylist() == [row["score"] for row in rows]
    assert table.column("event").to_pylist()[0] == LINES[0].decode()

    tables_get_the_same_scores(rig, scores)


def tables_get_the_same_scores(rig: Rig, scores: Results) -> None:
    """The events as typed rows of a Parquet file and as texts of a CSV file have the scores that the broker has."""
    named = [json.loads(line) for line in LINES[:42]]
    columns: dict[str, Any] = {name: [event.get(name) for event in named] for name in ("id", "a", "b", "after", "kind")}
    source = pyarrow.table(
        {
            "id": pyarrow.array(columns["id"]),
            "a": pyarrow.array(columns["a"], pyarrow.float64()),
            "b": pyarrow.array(columns["b"], pyarrow.float64()),
            "after": pyarrow.array(columns["after"], pyarrow.struct([("c", pyarrow.float64())])),
            "kind": pyarrow.array(columns["kind"]).dictionary_encode(),
            "took": pyarrow.array([1] * 42, pyarrow.duration("s")),
        }
    )
    parquet.write_table(source, rig.folder / "events.parquet", row_group_size=10)
    rig.run("scorer", "score", "scorer.yaml", "events.parquet", "--output", "of-parquet.parquet")
    table = parquet.read_table(rig.folder / "of-parquet.parquet")
    assert table.select(source.schema.names).equals(source)
    results = dict(zip(columns["id"], table.column("score").to_pylist(), strict=True))
    assert results == {id_: json.loads(scores[id_][0] or b"") for id_ in columns["id"]}
    assert table.column("decision").to_pylist() == [scores[id_][1] for id_ in columns["id"]]

    frame = pandas.DataFrame({"id": columns["id"], "a": columns["a"], "b": columns["b"], "kind": columns["kind"]})
    frame["after.c"] = [(event.get("after") or {}).get("c") for event in named]
    frame.to_csv(rig.folder / "events.csv", index=False)
    with (rig.folder / "events.csv").open("ab") as file:
        file.write(b'word,one,,card,\n"too many",1,,card,,,\nnan,nan,,card,\nfew,1\nbytes,1,,\xff,\n')
    completed = rig.run("scorer", "score", "scorer.yaml", "events.csv", "--format", "json", code=1)
    rows = [json.loads(line) for line in completed.stdout.splitlines()]
    texts = {line["id"]: line["score"] for line in rows[:42]}
    assert texts == results
    assert [row["status"] for row in rows[42:]] == ["wrong-type", "malformed", "not-finite", "missing-field", "not-utf8"]
    assert "'a'" in rows[42]["error"]
    printed = rig.run("scorer", "score", "scorer.yaml", "events.csv", code=1).stdout
    cells = pandas.read_csv(pandas.io.common.StringIO(printed))
    assert [json.loads(cell) for cell in cells["score"][:42]] == [results[id_] for id_ in columns["id"]]


def test_versions_and_files_are_chosen_and_checked(rig: Rig) -> None:
    parquet.write_table(pyarrow.table({"a": [1.0, None], "kind": ["card", "card"]}), rig.folder / "rows.parquet")
    chosen = ("--version", "./1.0.0", "--format", "json")
    completed = rig.run("scorer", "score", "scorer.yaml", "rows.parquet", *chosen, code=1)
    assert [json.loads(line)["status"] for line in completed.stdout.splitlines()] == ["scored", "missing-field"]
    assert "1 of 2 rows scored with 1.0.0" in completed.stderr
    assert "without a column, with their defaults: b, c" in completed.stderr
    assert "9.9.9" in rig.run("scorer", "score", "scorer.yaml", "rows.parquet", "--version", "9.9.9", code=None).stderr

    def refused(name: str, *arguments: str) -> str:
        return rig.run("scorer", "score", "scorer.yaml", name, *arguments, code=2).stderr

    assert "did you mean 'rows.parquet'?" in refused("row.parquet")
    parquet.write_table(pyarrow.table({"a": [1.0], "kinds": ["card"]}), rig.folder / "misspelt.parquet")
    assert "has no column for 'kind'" in refused("misspelt.parquet")
    parquet.write_table(pyarrow.table({"a": [1.0], "kind": ["card"], "score": [1]}), rig.folder / "again.parquet")
    assert "already has the column 'score'" in refused("again.parquet")
    rig.run("scorer", "score", "scorer.yaml", "again.parquet", "--prefix", "new_", "--output", "new.csv")
    assert (rig.folder / "new.csv").read_text().splitlines()[0] == "a,kind,score,new_score,new_decision,new_status,new_error"
    (rig.folder / "broken.parquet").write_bytes(b"PAR1 without a footer")
    assert "broken.parquet cannot be read" in refused("broken.parquet")
    (rig.folder / "rows.xlsx").write_bytes(b"")
    assert "the format of rows.xlsx is unknown" in refused("rows.xlsx")
    (rig.folder / "empty.csv").write_bytes(b"")
    assert "has no header" in refused("empty.csv")
    parquet.write_table(
        pyarrow.table({"a": pyarrow.array([1], pyarrow.duration("s")), "kind": ["x"]}), rig.folder / "t.parquet"
    )
    assert "the column 'a' has the type duration[s]" in refused("t.parquet")


def test_events_of_a_schema_are_given_as_objects(rig: Rig) -> None:
    schema = {"type": "record", "name": "Event", "fields": [{"name": "a", "type": "float"}, {"name": "kind", "type": "string"}]}
    (rig.folder / "events.avsc").write_text(json.dumps(schema))
    rig.configure(input={"format": "avro", "schema_file": "./events.avsc"})
    line = b'{"a": 2, "kind": "card"}\n'
    row = json.loads(rig.run("scorer", "score", "scorer.yaml", "-", stdin=line).stdout)
    assert row["score"] == pytest.approx([0.9, 2.95, 0.7], abs=1e-6)


def test_joined_fields_are_columns_of_the_file(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.configure(tables={"customers": {"topic": f"{rig.name}.customers", "key": "customer"}})
    rig.push(models.joined_package(rig.folder / "1.0.0", 2.0), "1.0.0")
    rig.promote("1.0.0")
    message = rig.run("scorer", "score", "scorer.yaml", "-", stdin=b'{"a": 1.0, "customer": "k"}\n', code=2).stderr
    assert "no field 'customers.b' (table:customers)" in message
    lines = b'{"a": 1.0, "customers.b": 2.0}\n{"a": 1.0}\n'
    rows = [json.loads(x) for x in rig.run("scorer", "score", "scorer.yaml", "-", stdin=lines, code=1).stdout.splitlines()]
    assert [row["score"] for row in rows] == [6.0, None]
    (rig.folder / "rows.csv").write_text("a,customer\n1,k\n")
    assert (
        "has no column for 'customers.b' (table:customers)"
        in rig.run("scorer", "score", "scorer.yaml", "rows.csv", code=2).stderr
    )
    (rig.folder / "rows.csv").write_text("a,customers.b\n1,2\n")
    assert rig.run("scorer", "score", "scorer.yaml", "rows.csv").stdout.splitlines()[1] == "1,2,6.0,high,scored,"
