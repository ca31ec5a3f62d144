"""Versions with joined fields on the real broker: the commands, a version without its table, and the sandbox."""

import json

from tests.integration.scorer.rig import MakeRig, events, until
from tests.support import models


def test_the_commands_know_joined_fields(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.configure(tables={"customers": {"topic": f"{rig.name}.customers", "key": "customer"}})
    rig.push(models.joined_package(rig.folder / "joined", 2.0), "1.0.0")
    rig.promote("1.0.0")
    rig.create()
    assert (
        "input     customers.b: float32 from table:customers"
        in rig.run("model-registry", "inspect", "oci:./registry/model:1.0.0").stdout
    )
    schema = json.loads(rig.run("scorer", "schema", "./joined").stdout)
    assert schema["properties"].keys() == {"a"}
    assert "description" not in schema
    assert "One process scores" in rig.run("scorer", "bench", "./joined", "--set", "batching.max_events=8").stdout
    assert rig.emit([{"id": "e", "a": 1, "customer": "c"}], key="k") == 1
    assert "the newest 1 events" in rig.run("scorer", "check", "scorer.yaml").stderr


def test_a_version_whose_table_is_not_configured_is_refused_and_the_running_version_goes_on(make_rig: MakeRig) -> None:
    rig = make_rig().stocked()
    rig.push(models.joined_package(rig.folder / "joined", 5.0), "2.0.0")
    scorer = rig.start().ready()
    rig.promote("2.0.0")
    reason = "joined from the table customers, which the configuration lacks; add tables.customers"
    until(lambda: reason in scorer.said, "the refusal")
    rig.emit(events(10))
    until(lambda: rig.answered() == 10, "all answers")
    assert {record["version"] for record in rig.scores()} == {"1.0.0"}
    assert scorer.stop() == 0
