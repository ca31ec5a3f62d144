"""The instructions of the page on your own training code, and its example for scikit-learn on the same orders."""

import json
from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.test_training import PAGE as FIRST
from tests.docs.test_training import Reader
from tests.support.environment import ROOT
from tests.support.shared_broker import Broker

PAGE = "deploy/training/recipes.md"
EXAMPLES = ROOT / "deploy" / "training" / "examples"
BY_FIELD = {
    "inputs": [
        {"tensor": "price", "dtype": "float32", "fields": ["price"]},
        {"tensor": "quantity", "dtype": "float32", "fields": ["quantity"]},
        {"tensor": "category", "dtype": "string", "fields": ["category"]},
    ],
    "output": {"tensor": "probabilities", "index": 1},
    "decision": {"threshold": 0.5, "at_or_above": "returned", "below": "kept"},
}


@pytest.fixture
def reader(tmp_path: Path, broker: Broker, unique: str) -> Reader:
    """A folder in which the orders of the first page are written to topics."""
    reader = Reader(tmp_path, broker.bootstrap_servers, unique)
    make, check, *rest = pages.lines(FIRST, "first")
    reader.shell(make)
    reader.shell(check, code=1)
    for line in rest[:3]:
        reader.shell(line)
    for block, name in {"signature": "signature.json", "training": "training.yaml", "lightgbm": "lightgbm_orders.py"}.items():
        (tmp_path / name).write_text(reader.ours(pages.blocks(PAGE)[block]))
    return reader


def test_the_example_of_the_page_is_promoted_and_reproduced(reader: Reader) -> None:
    run, show, reproduce = pages.lines(PAGE, "first")
    assert "the channel prod was moved, revision 1" in reader.shell(run)
    shown = " ".join(reader.shell(show).split())
    assert "num_leaves" in shown
    assert "better than chance" in shown
    reproduction = json.loads(reader.shell(f"{reproduce} --json"))
    assert (reproduction["same"], "because" in reproduction) == (True, False)


def test_scikit_learn_with_a_column_transformer_is_promoted_and_reproduced(reader: Reader) -> None:
    (reader.folder / "sklearn_orders.py").write_text((EXAMPLES / "sklearn_orders.py").read_text())
    (reader.folder / "signature.json").write_text(json.dumps(BY_FIELD))
    path = reader.folder / "training.yaml"
    path.write_text(path.read_text().replace("lightgbm_orders", "sklearn_orders").replace("num_leaves", "max_leaf_nodes"))
    run, _, reproduce = pages.lines(PAGE, "first")
    result = json.loads(reader.shell(f"{run} --json"))
    assert result["outcome"] == "promoted"
    assert result["search"]["best"]["score"] > 0.6
    assert json.loads(reader.shell(f"{reproduce} --json"))["same"]


def test_the_page_shows_the_example_as_it_is() -> None:
    assert pages.blocks(PAGE)["lightgbm"] == (EXAMPLES / "lightgbm_orders.py").read_text()
