"""The rules of a canary comparison."""

from scorer.rollout.canary_analysis.rules import Margins


def test_versions_without_decisions_are_judged_only_by_errors() -> None:
    assert [rule.name for rule in Margins().rules(decided=True)] == ["errors", "flips"]
    assert [rule.name for rule in Margins().rules(decided=False)] == ["errors"]
