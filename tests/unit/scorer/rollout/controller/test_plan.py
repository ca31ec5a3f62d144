"""Parsing of rollout plans, and the messages for invalid plans."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from publisher.errors import USAGE, Fatal
from scorer.rollout.controller import plan
from scorer.rollout.controller.plan import StepKind
from tests.support.environment import ROOT

COMPLETE_PLAN = """
candidate: 2.0.0
steps:
  - compare: {last: 1h}
  - {shadow: 20%, bake: 30m}
  - {canary: 5%, bake: 15m}
  - {canary: 25%, bake: 30m, approve: true}
  - {promote: true, watch: 1h}
rules: {errors: 0.5%, flips: 5%, psi: 0.2, cost: 1.5x, brier: {margin: 0.005, within: 48h}}
patience: 6h
"""
PROMOTE = {"promote": True}


def test_the_plan_of_the_page_is_parsed_and_survives_json(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(COMPLETE_PLAN)
    parsed = plan.read(path)
    assert [step.kind for step in parsed.steps] == [
        StepKind.COMPARE,
        StepKind.SHADOW,
        StepKind.CANARY,
        StepKind.CANARY,
        StepKind.PROMOTE,
    ]
    assert [step.seconds for step in parsed.steps] == [0, 1_800, 900, 1_800, 3_600]
    assert [str(step) for step in parsed.steps] == ["compare", "shadow 20 %", "canary 5 %", "canary 25 %", "promote"]
    assert [parsed.pairs(at) for at in range(5)] == [0, 20, 20, 20, 20]
    assert (parsed.judged, parsed.patience, parsed.rules.cost) == (4, 21_600, 1.5)
    margins = parsed.rules.margins()
    assert (margins.errors, margins.flips, margins.psi, margins.brier) == (0.005, 0.05, 0.2, 0.005)
    assert parsed.undecided_seconds({"brier"}) == 48 * 3_600
    assert parsed.undecided_seconds({"brier", "errors"}) == parsed.undecided_seconds(set()) == 21_600
    assert plan.parse(parsed.model_dump(mode="json", exclude_none=True), "again") == parsed


def test_a_plan_may_be_short() -> None:
    parsed = plan.parse({"candidate": "2", "steps": [{"canary": 5}, PROMOTE], "rules": {"brier": 0.01}}, "p")
    assert (parsed.judged, parsed.pairs(1), parsed.steps[1].judged) == (1, 0, False)
    assert parsed.rules.margins().brier == 0.01


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1], "the plan"),
        ({"candidate": "2", "steps": []}, "steps"),
        ({"candidate": 2.0, "steps": [PROMOTE]}, "candidate: 2.0 is not a text: write it in quotes"),
        (
            {"candidate": "2", "steps": [PROMOTE], "stepz": 1},
            "stepz: unknown key with value 1; the nearest",
        ),
        ({"candidate": "2", "steps": [{"canary": 5, "bakes": 1}, PROMOTE]}, "the nearest valid name is 'bake'"),
        ({"steps": [PROMOTE]}, "candidate: this key is missing"),
        ({"candidate": "2", "steps": [{"canary": "5%"}]}, "the last step, and no other step, must be promote"),
        ({"candidate": "2", "steps": [PROMOTE, PROMOTE]}, "the last step, and no other step, must be promote"),
        ({"candidate": "2", "steps": [{"promote": False}]}, "steps.0.promote"),
        ({"candidate": "2", "steps": [{"canary": "25%"}, {"canary": "5%"}, PROMOTE]}, "25, 5"),
        ({"candidate": "2", "steps": [{"canary": "5%"}, {"shadow": "5%"}, PROMOTE]}, "shadow steps must precede"),
        ({"candidate": "2", "steps": [{"shadow": "5%"}, {"compare": {}}, PROMOTE]}, "compare must be the first step"),
        ({"candidate": "2", "steps": [{"canary": "100%"}, PROMOTE]}, "steps.0.canary"),
        ({"candidate": "2", "steps": [{"canary": "5 percent"}, PROMOTE]}, "not '5 percent'"),
        ({"candidate": "2", "steps": [{"canary": "5%", "shadow": "5%"}, PROMOTE]}, "but it has shadow and canary"),
        ({"candidate": "2", "steps": [{}, PROMOTE]}, "but it has none"),
        ({"candidate": "2", "steps": [{"canary": "5%", "bake": "soon"}, PROMOTE]}, "'soon' is not a valid duration"),
        ({"candidate": "2", "steps": [{"canary": "5%", "watch": "1h"}, PROMOTE]}, "only promote steps can have watch"),
        ({"candidate": "2", "steps": [{"promote": True, "bake": "1h"}]}, "only shadow and canary steps can have bake"),
        ({"candidate": "2", "steps": [PROMOTE], "rules": {"errors": "x%"}}, "rules.errors"),
        ({"candidate": "2", "steps": [PROMOTE], "rules": {"cost": "0x"}}, "rules.cost"),
        ({"candidate": "2", "steps": [PROMOTE], "rules": {"brier": True}}, "rules.brier"),
        ({"candidate": "2", "steps": [PROMOTE] * 51}, "steps"),
    ],
)
def test_an_invalid_plan_is_refused_with_the_error(values: Any, message: str) -> None:
    with pytest.raises(Fatal, match="p: ") as raised:
        plan.parse(values, "p")
    assert message in str(raised.value)
    assert raised.value.exit_code == USAGE


@pytest.mark.parametrize("text", [b"\xff\xfe", b"a: [", b"{" * 5_000, b"#" * 200_000, yaml.safe_dump([1]).encode()])
def test_files_that_are_no_plan_are_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "plan.yaml"
    path.write_bytes(text)
    with pytest.raises(Fatal) as raised:
        plan.read(path)
    assert (raised.value.exit_code, str(path) in str(raised.value)) == (USAGE, True)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match=r"nothing\.yaml"):
        plan.read(tmp_path / "nothing.yaml")


def test_the_hint_of_an_error_names_the_page_with_a_plan() -> None:
    with pytest.raises(Fatal) as error:
        plan.parse([1], "p")
    page = (error.value.hint or "").rpartition(" ")[2]
    assert "candidate: 2.0.0" in (ROOT / page).read_text()
