"""What came true of scored events: labels on a real broker joined with scores, by `labels`, `compare` and the console."""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from typing import Any

import httpx
import numpy as np
import pytest
from confluent_kafka import Producer
from sklearn import metrics

from tests.integration.scorer.browser import console
from tests.integration.scorer.rig import STEP_SECONDS, MakeRig, Rig, events, until
from tests.support import models

COUNT = 128
FACTOR = 1 / COUNT  # event n scores n / 128: below 64 it is called low


def write_labels(rig: Rig, labels: Iterable[tuple[bytes | None, bytes | None]]) -> None:
    """Keys and values, in this order, into the one partition of the topic of labels."""
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers})
    for key, value in labels:
        producer.produce(f"{rig.name}.labels", value, key)
    assert producer.flush(STEP_SECONDS) == 0


def label(number: int, outcome: object) -> tuple[bytes, bytes]:
    return b"e%d" % number, json.dumps({"flight": {"id": f"e{number}"}, "told": {"outcome": outcome}}).encode()


def true(number: int) -> bool:
    return number % 3 == 0 or number > 100


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    """Version 1.0.0, score = n / 128, in production, and 2.0.0 with half of that."""
    rig = make_rig()
    rig.configure(
        labels={
            "topic": f"{rig.name}.labels",
            "id": "flight.id",
            "value": "told.outcome",
            "kind": "class",
            "classes": ["low", "high"],
            "max_events": 1_000,
        }
    )
    for version, factor in (("1.0.0", FACTOR), ("2.0.0", FACTOR / 2)):
        rig.push(models.linear_package(rig.folder / version, factor), version)
    rig.promote("1.0.0")
    rig.make_topic(f"{rig.name}.labels", 1)
    rig.create(3)
    return rig


HOSTILE = [
    (None, b"{"),
    (None, None),
    (None, b'{"told": {"outcome": 1}}'),
    (None, b'{"flight": {"id": "e1"}, "told": {"outcome": NaN}}'),
    (None, b'{"flight": {"id": "e1"}, "told": {"outcome": "purple"}}'),
    (None, b'{"flight": {"id": "e1"}, "told": {"outcome": []}}'),
    (None, b'{"flight": {"id": "e1"}, "told": {"outcome": 1e999}}'),
]


def shows_quality(rig: Rig) -> dict[str, Any]:
    """`scorer labels`, as JSON, beside scikit-learn; its table and its picture."""
    report: dict[str, Any] = json.loads(
        rig.run("scorer", "labels", "scorer.yaml", "--last", "1h", "--svg", "q.svg", "--json").stdout
    )
    version: dict[str, Any] = report["versions"][0]
    assert len(report["versions"]) == 1
    numbers = [n for n in range(COUNT) if n % 4]
    scores, outcomes = np.float32(FACTOR) * np.array(numbers, np.float32), [true(n) for n in numbers]
    scores = np.array([float(str(score)) for score in scores])  # as JSON has them
    assert (report["answered"], report["labelled"], report["labels_unmatched"], report["labels_replaced"]) == (COUNT, 96, 2, 10)
    assert version["auc"] == pytest.approx(metrics.roc_auc_score(outcomes, scores), abs=1e-9)
    assert version["brier"] == pytest.approx(metrics.brier_score_loss(outcomes, scores), abs=1e-9)
    assert version["matrix"] == metrics.confusion_matrix(outcomes, scores >= 0.5).tolist()
    reasons = {each["reason"]: each["labels"] for each in report["labels_refused"]}
    assert reasons == {
        "not-json": 1,
        "tombstone-without-id": 1,
        "no-id": 1,
        "not-finite": 2,
        "unknown-class": 1,
        "no-value": 1,
    }
    assert all(each["first"]["topic"] == f"{rig.name}.labels" for each in report["labels_refused"])
    output = rig.run("scorer", "labels", "scorer.yaml").stdout
    assert "1.0.0" in output
    assert f"{version['brier']:.5g}" in output
    drawn = ElementTree.fromstring((rig.folder / "q.svg").read_text())
    assert any("1.0.0: 96 events" in (text.text or "") for text in drawn.iter("{http://www.w3.org/2000/svg}text"))
    return version


def checked(rig: Rig, *flags: str, code: int = 0) -> str:
    """Return the detail of the labels in the report of `scorer check`."""
    checks = json.loads(rig.run("scorer", "check", "scorer.yaml", "--json", *flags, code=code).stdout)["checks"]
    (check,) = [each for each in checks if each["check"] == "labels"]
    assert check["ok"] is (code == 0)
    return str(check["detail"])


def test_late_doubled_and_hostile_labels(rig: Rig) -> None:
    rig.run("scorer", "labels", "scorer.yaml", code=1)  # no score, no label: an empty report is no success
    early = [label(n, "high") for n in range(10) if n % 4] + [label(5_000, "low"), label(5_001, 1)]
    write_labels(rig, early)  # before their events
    assert "9 of the newest 9 labels" in checked(rig)
    rig.emit(events(COUNT))
    rig.start().ready()
    until(lambda: rig.answered() == COUNT, "all scores")
    write_labels(rig, HOSTILE)
    detail = checked(rig, code=1)
    assert "the unreadable labels: not-finite (2), " in detail
    assert "unknown-class (1)" in detail
    later = [label(n, true(n) if n % 2 else ("high" if true(n) else "low")) for n in reversed(range(COUNT)) if n % 4]
    write_labels(rig, [*later, *[label(n, true(n)) for n in (1, 2, 3)]])
    assert "does not exist" in checked(rig, "--set", f"labels.topic={rig.name}.none", code=1)
    with console(rig) as address:
        version = shows_quality(rig)
        until(lambda: f"{version['brier']:.3g}" in httpx.get(f"{address}/scores").text, "the Brier score in the console")
    assert json.loads(rig.run("scorer", "labels", "scorer.yaml", "--to", "1", "--json", code=1).stdout)["labelled"] == 0
    as_numbers = ("--set", "labels.kind=number", "--set", "labels.classes=[]", "--json")
    numeric = json.loads(rig.run("scorer", "labels", "scorer.yaml", *as_numbers).stdout)
    assert (numeric["labelled"], numeric["versions"][0]["auc"]) == (65, None), "the names of classes are no numbers"
    assert 0 < numeric["versions"][0]["root_mean_square_error"] < 1
    limits = ("--max-flips", "1", "--max-psi", "100")
    compared = json.loads(rig.run("scorer", "compare", "scorer.yaml", "2.0.0", *limits, "--json").stdout)["labels"]
    champion, candidate = compared["versions"]
    assert champion["brier"] == pytest.approx(version["brier"], abs=1e-9)
    assert compared["labelled"] == candidate["labels"] == 96
    assert compared["differences"]["auc"] == 0.0  # half of each score: the same order
    assert compared["differences"]["brier"] == pytest.approx(candidate["brier"] - champion["brier"])
    assert "Brier" in rig.run("scorer", "compare", "scorer.yaml", "2.0.0", *limits).stdout


def test_without_a_topic_of_labels_the_remedy_is_named(make_rig: MakeRig) -> None:
    rig = make_rig()
    assert "labels: {topic: NAME" in rig.run("scorer", "labels", "scorer.yaml", code=2).stderr
    rig.configure(labels={"topic": f"{rig.name}.nowhere"})
    rig.make_topic(rig.scores_topic, 1)
    assert "no topic" in rig.run("scorer", "labels", "scorer.yaml", code=2).stderr
