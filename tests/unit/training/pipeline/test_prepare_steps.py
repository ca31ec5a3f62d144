"""The plan of a run, and the check that an interrupted run has the same plan."""

from pathlib import Path

from tests.unit.training.labelled_rows import SIGNATURE
from training.pipeline.prepare_steps import has_planned_signature
from training.pipeline.step_results import RunPlan


def test_a_run_continues_only_with_the_signature_of_its_plan(tmp_path: Path) -> None:
    planned = RunPlan(0, {}, SIGNATURE.to_json(), None, "sha256:" + "e" * 64)
    path = tmp_path / "signature.json"
    path.write_text(f"\n{SIGNATURE.to_json()}\n")
    assert has_planned_signature(planned, path)
    assert has_planned_signature(planned, None), "the signature is that of the champion"
    path.write_text(SIGNATURE.to_json().replace('"delay"', '"late"'))
    assert not has_planned_signature(planned, path)
    path.write_text("{")
    assert not has_planned_signature(planned, path)
    assert not has_planned_signature(planned, tmp_path / "missing.json")
