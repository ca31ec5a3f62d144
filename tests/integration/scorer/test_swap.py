"""Versions on the real broker: swapped while events flow, refused, gone back from, and never backwards by accident."""

import shutil
import threading

from tests.integration.scorer.rig import MakeRig, events, until
from tests.support import models

PARTITIONS = 4


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


def test_a_start_without_a_channel_ends_clearly_and_one_without_a_good_version_waits_for_it(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.create(code=1)
    scorer = rig.start()
    until(lambda: "model-registry: " in scorer.get("/readyz")[1], "the wait")
    golden = [{"event": {"a": 1, "b": 2}, "score": 9.0, "tolerance": 1e-3}]
    rig.push_unchecked(models.package(rig.folder / "bad", lambda path: models.linear(path, 1.0), golden=golden), "1.0.0")
    assert scorer.wait() == 3
    assert "prod" in scorer.said
    rig.promote("1.0.0")
    waiting = rig.start("b")
    reason = "model: no model version to serve: 1.0.0: golden example 1"
    until(lambda: "golden example 1" in waiting.said and reason in waiting.get("/readyz")[1], "the reason")
    assert (waiting.get("/livez")[0], waiting.get("/readyz")[0]) == (200, 503)
    assert waiting.metric("scorer_channel_refused") == 1
    rig.push(models.linear_package(rig.folder / "2.0.0", 3.0), "2.0.0")
    rig.promote("2.0.0")
    waiting.ready()
    assert (waiting.metric("scorer_model_revision"), waiting.metric("scorer_channel_refused")) == (2, 0)
    rig.configure(model={"device": "cuda", "devices": [0], "backend": "onnx-runtime", "tag": "prod"})
    message = rig.run("scorer", "run", "scorer.yaml", code=2).stderr
    assert "CPUExecutionProvider" in message
    assert "[gpu]" in message


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
    assert {record["version"] for record in rig.scores()} == {"2.0.0"}
    assert second.metric("scorer_revision_fence_timeouts_total") == 0
