"""What a proof finds: claims, what was seen of each, and whether it holds."""

import json
from collections.abc import Iterable
from typing import NamedTuple


class Finding(NamedTuple):
    """One claim."""

    what: str
    seen: str
    ok: bool


def told(findings: Iterable[Finding], *, as_json: bool) -> int:
    """Print each as it is found, or all as JSON. The exit code: 0 where every claim holds, else 1."""
    found = []
    for finding in findings:
        found.append(finding)
        if not as_json:
            print(f"{'ok  ' if finding.ok else 'FAIL'} {finding.what}: {finding.seen}", flush=True)
    if as_json:
        print(json.dumps([finding._asdict() for finding in found], indent=2))
    return int(not all(finding.ok for finding in found))
