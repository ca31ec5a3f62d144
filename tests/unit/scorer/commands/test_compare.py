"""The tables of `scorer compare`."""

from rich.console import Console

from scorer.commands.compare import as_tables
from scorer.evaluation.assessment import Assessment
from scorer.evaluation.compare_versions import ComparisonRun
from scorer.evaluation.comparison_report import Limits, build_report
from scorer.evaluation.label_columns import RecordPosition, Refusals
from scorer.evaluation.label_record import Unusable
from scorer.evaluation.score_differences import Differences


def test_the_reasons_of_unusable_labels_are_shown() -> None:
    refused = Refusals()
    for offset in (8, 7):
        refused.add(Unusable.NO_ID, RecordPosition(("labels", 0), offset), lambda: "the key is [empty]")
    labelled = Assessment((), None, 0, 0, 0, 0, 0, refused)
    run = ComparisonRun(Differences(), {"champion": 1.0, "candidate": 1.0}, {}, labelled)
    console = Console(width=200)
    with console.capture() as captured:
        console.print(as_tables(build_report("a", "b", run, Limits())))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert "labels of other events: 0; unusable labels: 2" in lines
    assert "2 are no-id, the first labels[0]@7: the key is [empty]" in lines
