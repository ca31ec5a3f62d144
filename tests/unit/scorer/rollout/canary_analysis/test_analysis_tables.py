"""The tables of a canary analysis."""

from rich.console import Console

from scorer.evaluation.decision_output import UNKNOWN
from scorer.rollout.canary_analysis.analysis_tables import analysis_tables
from tests.support import rollouts


def test_a_version_without_a_known_deciding_output_is_named() -> None:
    console = Console(width=200)
    outputs = {rollouts.OLD.digest: "risk", rollouts.NEW.digest: None}
    with console.capture() as captured:
        console.print(analysis_tables(rollouts.judgement() | {"outputs": outputs}))
    rows = [line for line in captured.get().splitlines() if UNKNOWN in line]
    assert len(rows) == 1
    assert "222222" in rows[0]
