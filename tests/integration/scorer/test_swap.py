"""Versions on the real broker: swapped while events flow, refused, gone back from, and never backwards by accident."""

import shutil
import threading

from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.support import models

PARTITIONS = 4


def served(rig: Rig) -> set[str]:
    """Versions among the scores so far."""
    return {record["version"] for record in rig.scores()}


def test_a_version_is_swapped_between_two_batches_while_events_flow(make_rig: MakeRig) -> None:
    rig = make_rig().stocked(PARTITIONS, versions=2)
    scorers = [rig.start(replica).ready() for replica in ("a", "b")]
    load = threading.Thread(target=rig.emit, args=(events(20_000), "--rate", "2000"))
    load.start()
    until(lambda: rig.answered() > 4_000, "the first scores")
    rig.promote("2.0.0", "better")
    load.join()
    until(lambda: rig.answered() >= 20_000, "all scores")
    records = rig.scores()
    for record in records:
        assert record["score"] == {"1.0.0": 2.0, "2.0.0": 3.0}[record["version"]] * float(record["id"][1:])
    assert rig.faults() == {}
    swaps = rig.swaps()
    for partition in range(PARTITIONS):
        first, second = [swap for swap in swaps if swap["partition"] == partition]
        assert (first["from_version"], first["version"], first["revision"]) == (None, "1.0.0", 1)
        assert (second["from_version"], second["version"], second["revision"]) == ("1.0.0", "2.0.0", 2)
        assert second["reason"] == "better"
        for record in records:
            if record["source"]["partition"] == partition:
                new = record["source"]["offset"] >= second["cut_over_offset"]
                assert record["version"] == ("2.0.0" if new else "1.0.0")
    assert [scorer.metric("scorer_swaps_total") for scorer in scorers] == [1, 1]


def test_a_start_without_a_version_that_can_be_served_ends_clearly(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.create(code=1)
    scorer = rig.start()
    until(lambda: "model-registry: " in scorer.get("/readyz")[1], "the wait")
    golden = [{"event": {"a": 1, "b": 2}, "score": 9.0, "tolerance": 1e-3}]
    rig.push_unchecked(models.package(rig.folder / "bad", lambda path: models.linear(path, 1.0), golden=golden), "1.0.0")
    assert scorer.wait() == 3
    assert "prod" in scorer.said
    rig.promote("1.0.0")
    said = rig.run("scorer", "run", "scorer.yaml", code=3).stderr
    assert "golden example 1" in said


def test_the_registry_going_away_stops_neither_scoring_nor_a_start(make_rig: MakeRig) -> None:
    rig = make_rig().stocked(PARTITIONS, versions=2)
    first = rig.start("a").ready()
    shutil.move(rig.folder / "registry", rig.folder / "away")
    rig.emit(events(100))
    until(lambda: rig.answered() == 100, "scores without a registry")
    until(lambda: first.metric("scorer_away") == 1, "the notice")
    assert first.get("/readyz")[0] == 200
    assert first.stop() == 0
    second = rig.start("b").ready()
    assert "last version known good" in second.said
    rig.emit(events(100, start=100))
    until(lambda: rig.answered() == 200, "scores after a start without a registry")
    shutil.move(rig.folder / "away", rig.folder / "registry")
    rig.promote("2.0.0")
    until(lambda: second.metric("scorer_model_revision") == 2, "the new version")


def test_a_partition_is_never_scored_by_an_older_revision_than_before(make_rig: MakeRig) -> None:
    """The second scorer sees a registry that lags behind; it waits for the revision that the first one has served."""
    rig = make_rig().stocked(PARTITIONS, versions=2)
    shutil.copytree(rig.folder / "registry", rig.folder / "lagging")
    rig.promote("2.0.0")
    first = rig.start("a").ready()
    rig.emit(events(400))
    until(lambda: rig.answered() == 400, "the first scores")
    assert first.stop() == 0
    second = rig.start("b", "--set", f"model.source=oci:{rig.folder}/lagging/model").ready()
    rig.emit(events(400, start=400))
    until(lambda: "waiting for a newer revision" in second.said, "the wait")
    assert len(rig.scores()) == 400
    rig.run("model-registry", "push", str(rig.folder / "2.0.0"), "oci:./lagging/model:2.0.0")
    rig.run("model-registry", "promote", "oci:./lagging/model", "--to", "2.0.0")
    until(lambda: rig.answered() == 800, "the scores of the second")
    assert served(rig) == {"2.0.0"}
    assert second.metric("scorer_revision_fence_timeouts_total") == 0


def test_a_device_that_is_not_there_is_an_error_at_start(make_rig: MakeRig) -> None:
    rig = make_rig(model={"device": "cuda", "backend": "onnx-runtime", "tag": "prod"})
    rig.push(models.linear_package(rig.folder / "one", 2.0), "1.0.0")
    rig.promote("1.0.0")
    rig.run("scorer", "check", "scorer.yaml", "--create", code=1)
    said = rig.run("scorer", "run", "scorer.yaml", code=2).stderr
    assert "CPUExecutionProvider" in said
    assert "scorestream[gpu]" in said
