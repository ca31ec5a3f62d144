"""Settings that no other test has a reason to change."""

from tests.integration.scorer.rig import MakeRig, events, until
from tests.support import models


def test_settings_that_say_the_default_or_go_to_the_client(make_rig: MakeRig) -> None:
    rig = make_rig(
        input={"format": "json"},
        output={"format": "json"},
        kafka={"transaction_timeout_ms": 8_000, "extra": {"client.rack": "r1"}},
        model={"buckets": [4, 32]},
    )
    rig.push(models.linear_package(rig.folder / "one", 2.0), "1.0.0")
    rig.promote("1.0.0")
    rig.create()
    rig.start().ready()
    rig.emit(events(10))
    until(lambda: rig.answered() == 10, "the scores")
    assert {record["id"]: record["score"] for record in rig.scores()} == {e["id"]: 2.0 * (e["a"] + e["b"]) for e in events(10)}
