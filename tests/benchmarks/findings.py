"""The findings of a proof: claims, the observation for each, and whether it holds."""

from collections.abc import Iterable
from typing import NamedTuple


class Finding(NamedTuple):
    """A claim and its observation."""

    claim: str
    observed: str
    ok: bool


def report_findings(findings: Iterable[Finding]) -> int:
    """Print each finding as it arrives; return exit code 0 if every claim holds, else 1."""
    failed = 0
    for finding in findings:
        failed += not finding.ok
        print(f"{'ok  ' if finding.ok else 'FAIL'} {finding.claim}: {finding.observed}", flush=True)
    return int(failed > 0)
