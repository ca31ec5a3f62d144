"""What a proof finds: claims, what was seen of each, and whether it holds."""

from collections.abc import Iterable
from typing import NamedTuple


class Finding(NamedTuple):
    """One claim."""

    claim: str
    observed: str
    ok: bool


def report_findings(findings: Iterable[Finding]) -> int:
    """Print each as it is found. The exit code: 0 where every claim holds, else 1."""
    failed = 0
    for finding in findings:
        failed += not finding.ok
        print(f"{'ok  ' if finding.ok else 'FAIL'} {finding.claim}: {finding.observed}", flush=True)
    return int(failed > 0)
