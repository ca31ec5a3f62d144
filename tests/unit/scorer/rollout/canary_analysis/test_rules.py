"""The rules of a canary comparison."""

from scorer.rollout.canary_analysis.rules import Margins


def test_versions_that_decide_nothing_are_judged_by_errors_alone() -> None:
    assert [rule.name for rule in Margins().rules(decided=True)] == ["errors", "flips"]
    assert [rule.name for rule in Margins().rules(decided=False)] == ["errors"]
