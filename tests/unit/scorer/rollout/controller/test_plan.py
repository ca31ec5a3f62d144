"""Plans as people write them, and what is wrong with them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from publisher.errors import USAGE, Fatal
from scorer.rollout.controller import plan
from scorer.rollout.controller.plan import StepKind

WHOLE = """
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


def test_the_plan_of_the_page_reads_and_survives_its_way_through_json(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(WHOLE)
    found = plan.read(path)
    assert [step.kind for step in found.steps] == [
        StepKind.COMPARE,
        StepKind.SHADOW,
        StepKind.CANARY,
        StepKind.CANARY,
        StepKind.PROMOTE,
    ]
    assert [step.seconds for step in found.steps] == [0, 1_800, 900, 1_800, 3_600]
    assert [str(step) for step in found.steps] == ["compare", "shadow 20 %", "canary 5 %", "canary 25 %", "promote"]
    assert [found.pairs(at) for at in range(5)] == [0, 20, 20, 20, 20]
    assert (found.judged, found.patience, found.rules.cost) == (4, 21_600, 1.5)
    margins = found.rules.margins()
    assert (margins.errors, margins.flips, margins.psi, margins.brier) == (0.005, 0.05, 0.2, 0.005)
    assert found.patience_with({"brier"}) == 48 * 3_600
    assert found.patience_with({"brier", "errors"}) == found.patience_with(set()) == 21_600
    assert plan.parse(found.model_dump(mode="json", exclude_none=True), "again") == found


def test_a_plan_may_be_short() -> None:
    found = plan.parse({"candidate": "2", "steps": [{"canary": 5}, PROMOTE], "rules": {"brier": 0.01}}, "p")
    assert (found.judged, found.pairs(1), found.steps[1].judged) == (1, 0, False)
    assert found.rules.margins().brier == 0.01


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1], "the plan"),
        ({"candidate": "2", "steps": []}, "steps"),
        ({"candidate": 2.0, "steps": [PROMOTE]}, "candidate: 2.0 is no text: write it in quotes"),
        (
            {"candidate": "2", "steps": [PROMOTE], "stepz": 1},
            "stepz: unknown key with value 1; the nearest",
        ),
        ({"candidate": "2", "steps": [{"canary": 5, "bakes": 1}, PROMOTE]}, "the nearest valid name is 'bake'"),
        ({"steps": [PROMOTE]}, "candidate: it is missing"),
        ({"candidate": "2", "steps": [{"canary": "5%"}]}, "the last step, and no other, is promote"),
        ({"candidate": "2", "steps": [PROMOTE, PROMOTE]}, "the last step, and no other, is promote"),
        ({"candidate": "2", "steps": [{"promote": False}]}, "steps.0.promote"),
        ({"candidate": "2", "steps": [{"canary": "25%"}, {"canary": "5%"}, PROMOTE]}, "25, 5"),
        ({"candidate": "2", "steps": [{"canary": "5%"}, {"shadow": "5%"}, PROMOTE]}, "a shadow comes before"),
        ({"candidate": "2", "steps": [{"shadow": "5%"}, {"compare": {}}, PROMOTE]}, "compare is the first step"),
        ({"candidate": "2", "steps": [{"canary": "100%"}, PROMOTE]}, "steps.0.canary"),
        ({"candidate": "2", "steps": [{"canary": "5 percent"}, PROMOTE]}, "not '5 percent'"),
        ({"candidate": "2", "steps": [{"canary": "5%", "shadow": "5%"}, PROMOTE]}, "this one shadow and canary"),
        ({"candidate": "2", "steps": [{}, PROMOTE]}, "this one none"),
        ({"candidate": "2", "steps": [{"canary": "5%", "bake": "soon"}, PROMOTE]}, "'soon' is no duration"),
        ({"candidate": "2", "steps": [{"canary": "5%", "watch": "1h"}, PROMOTE]}, "write bake"),
        ({"candidate": "2", "steps": [{"promote": True, "bake": "1h"}]}, "bake belongs to shadow and canary"),
        ({"candidate": "2", "steps": [PROMOTE], "rules": {"errors": "x%"}}, "rules.errors"),
        ({"candidate": "2", "steps": [PROMOTE], "rules": {"cost": "0x"}}, "rules.cost"),
        ({"candidate": "2", "steps": [PROMOTE], "rules": {"brier": True}}, "rules.brier"),
        ({"candidate": "2", "steps": [PROMOTE] * 51}, "steps"),
    ],
)
def test_what_is_wrong_is_named(values: Any, said: str) -> None:
    with pytest.raises(Fatal, match="p: ") as found:
        plan.parse(values, "p")
    assert said in str(found.value)
    assert found.value.exit_code == USAGE


@pytest.mark.parametrize("text", [b"\xff\xfe", b"a: [", b"{" * 5_000, b"#" * 200_000, yaml.safe_dump([1]).encode()])
def test_files_that_are_no_plan_are_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "plan.yaml"
    path.write_bytes(text)
    with pytest.raises(Fatal) as found:
        plan.read(path)
    assert (found.value.exit_code, str(path) in str(found.value)) == (USAGE, True)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match=r"nothing\.yaml"):
        plan.read(tmp_path / "nothing.yaml")
