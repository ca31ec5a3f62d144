"""Quantiles and intervals of whole runs, on a real broker: they are searched, evaluated, attested, compared and shown."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chaos.training.ground import TRAINING
from tests.docs import pages
from tests.integration.training.test_targets import TargetGround
from tests.support.environment import ROOT
from tests.support.shared_broker import Broker

PAGE = "deploy/training/intervals.md"
RECIPE = ROOT / "deploy" / "training" / "examples" / "interval_minutes.py"
LEVEL = 0.8


@pytest.fixture
def ground(broker: Broker, tmp_path: Path) -> TargetGround:
    """A folder with the signature and the recipe of the page."""
    ground = TargetGround(broker.bootstrap_servers, tmp_path / f"intervals-{tmp_path.name[-12:]}", "number")
    (ground.folder / "signature.json").write_text(pages.blocks(PAGE)["signature"])
    shutil.copy(RECIPE, ground.folder)
    return ground


def configure(ground: TargetGround, gate: dict[str, Any], **changed: Any) -> None:
    """Write the settings of the page, with these changes."""
    stated = yaml.safe_load(pages.blocks(PAGE)["evaluation"])
    ground.configure(**stated | {"gate": TRAINING["gate"] | stated["gate"] | gate} | changed)


def test_intervals_are_judged_by_their_score_and_shown_with_their_coverage(ground: TargetGround) -> None:
    configure(ground, {}, parameters={"width": 0.4}, search={"metric": "interval_score", "trials": 1, "rungs": [1]})
    narrow = ground.result("run")
    configure(ground, {"promote": "better"})
    searched = ground.result("run")
    assert (narrow["outcome"], searched["outcome"]) == ("promoted", "promoted")
    assert narrow["comparison"]["because"].startswith("the first model is better than a constant prediction, by interval_score")
    compared = searched["comparison"]
    assert compared["target"]["interval"] == {"low": "minutes_low", "high": "minutes_high", "level": LEVEL}
    assert compared["difference"]["high"] < 0
    champion, challenger = (compared[side]["metrics"] for side in ("champion", "challenger"))
    assert champion["rmse"] == pytest.approx(challenger["rmse"])
    assert champion["interval_coverage"] < 0.6 < challenger["interval_coverage"]
    assert champion["interval_width"] < challenger["interval_width"]
    scores = [trial["score"] for trial in searched["search"]["rungs"][0]["trials"]]
    assert (searched["search"]["goal"], searched["search"]["best"]["score"]) == ("min", min(scores))

    evaluation = ground.evaluation()
    assert {"interval_score", "interval_coverage", "interval_width"} < set(evaluation["metrics"])
    coverage = evaluation["interval_coverage"]
    assert coverage == compared["challenger"]["interval_coverage"]
    assert (coverage["level"], coverage["value"]) == (LEVEL, evaluation["metrics"]["interval_coverage"])
    assert coverage["low"] < coverage["value"] < coverage["high"]

    assert ground.result("compare", narrow["version"], "--against", "prod", code=1)["metric"] == "interval_score"
    recorded = ground.result("show")["comparison"]["challenger"]
    assert (recorded["metrics"], recorded["interval_coverage"]) == (compared["challenger"]["metrics"], coverage)


def test_trees_of_a_quantile_are_searched_and_judged_by_its_loss(broker: Broker, tmp_path: Path) -> None:
    ground = TargetGround(broker.bootstrap_servers, tmp_path / f"quantile-{tmp_path.name[-12:]}", "number")
    ground.configure(evaluation={"quantile": 0.9}, gate=TRAINING["gate"] | {"margin": 0.2})
    run = ground.result("run")
    compared = run["comparison"]
    assert (run["outcome"], run["search"]["metric"], compared["metric"]) == ("promoted", "quantile_loss", "quantile_loss")
    assert compared["target"]["quantile"] == 0.9
    metrics = ground.evaluation()["metrics"]
    assert 0 < metrics["quantile_loss"] < metrics["mae"]
    (card,) = ground.folder.glob("runs/*/package/README.md")
    assert "| Predicts | the 0.9 quantile of the label |" in card.read_text()
    assert ground.result("reproduce", "prod")["same"]


def test_an_output_that_the_signature_does_not_have_ends_the_run_before_any_work(ground: TargetGround) -> None:
    configure(ground, {}, evaluation={"interval": {"low": "lowest", "high": "minutes_high", "level": LEVEL}})
    ground.result("run", code=2)
    log = (ground.folder / "log").read_text()
    assert "evaluation.interval.low is 'lowest', but the signature has no such output" in log
    assert "minutes, minutes_low, minutes_high" in log
    assert not ground.steps()
