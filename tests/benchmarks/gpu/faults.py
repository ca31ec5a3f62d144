"""Faults of a device: events that exceed its memory or never end, and a device that is hidden."""

import json
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.findings import Finding
from tests.integration.scorer.rig import Rig, events, until
from tests.support import models

COUNT = 400
BAD = {120: {"b": -1e15}, 130: {"b": 1e15}}  # more bytes than any device has; a loop of that many rounds
DEADLINE_MS = 500


def faults(device: str, servers: str, folder: Path) -> Iterator[Finding]:
    """Yield the findings of each fault. `folder` must exist."""
    rig = Rig(servers, folder, f"faults-{device}", model={"device": device, "deadline_ms": DEADLINE_MS})
    rig.push(models.package(folder / "one", models.moody, {**models.LINEAR, "decision": None}), "1.0.0")
    rig.promote("1.0.0")
    rig.create(1)
    try:
        rig.emit({**event, "a": event["a"] + 1, **BAD.get(number, {})} for number, event in enumerate(events(COUNT)))
        scorer = rig.start()
        until(lambda: rig.answered() >= COUNT, "all answers")
        letters = {json.loads(letter["value"])["id"]: letter["reason"] for letter in rig.dead()}
        expected = dict.fromkeys((f"e{number}" for number in BAD), "inference-failed")
        yield Finding(f"{device}: only events without memory or end are dead letters", str(letters), letters == expected)
        violations = rig.faults()
        yield Finding(f"{device}: events lost, doubled or out of order", str(violations or "none"), not violations)
        yield Finding(f"{device}: the worker that had them survives", f"{scorer.deaths} deaths", not scorer.deaths)
        yield Finding(f"{device}: it ends with code 0", f"code {(code := scorer.stop())}", code == 0)
        if device != "cpu":
            hidden = rig.start("b", CUDA_VISIBLE_DEVICES="")
            code = hidden.wait()
            message = next((line for line in hidden.said.splitlines() if "model.device is" in line), "nothing")
            yield Finding(
                f"{device}: without the card it is refused at start, by name", message, code == 2 and device in message
            )
    finally:
        rig.close()
