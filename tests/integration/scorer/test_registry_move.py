"""A scorer that moves to another registry: a copied channel changes nothing visible, a recreated channel is reported."""

import json

from tests.integration.scorer.rig import MakeRig, Rig, ScorerProcess, events, until

NEW = "oci:./elsewhere/model"
YOUNGER = "the channel is younger than its partitions"


def scored_at_revision_5(make_rig: MakeRig) -> Rig:
    """Score 400 events with version 1.0.0 at revision 5 of the channel, and stop the scorer."""
    rig = make_rig().stocked(versions=2)
    for version in ("2.0.0", "1.0.0", "2.0.0", "1.0.0"):
        rig.promote(version)
    first = rig.start("a").ready()
    rig.emit(events(400))
    until(lambda: rig.answered() == 400, "the scores at revision 5")
    assert first.stop() == 0
    assert {mark["revision"] for mark in rig.marks().values()} == {5}
    return rig


def scored_in_new_registry(rig: Rig) -> ScorerProcess:
    """Configure the new registry, and return a scorer that has scored 400 further events with the same version."""
    rig.configure(model={"source": NEW})
    second = rig.start("b").ready()
    rig.emit(events(400, start=400))
    until(lambda: rig.answered() == 800, "the scores of the new registry's version")
    assert {record["version"] for record in rig.scores()} == {"1.0.0"}
    assert "waiting for a newer revision" not in second.said
    assert second.metric("scorer_revision_fence_timeouts_total") == 0
    return second


def test_a_copied_channel_has_the_same_revision_and_nothing_is_visible(make_rig: MakeRig) -> None:
    rig = scored_at_revision_5(make_rig)
    rig.run("model-registry", "copy", "oci:./registry/model", NEW)
    second = scored_in_new_registry(rig)
    assert (second.metric("scorer_model_revision"), second.metric("scorer_channel_younger")) == (5, 0)
    assert YOUNGER not in second.said
    assert {swap["revision"] for swap in rig.swaps()} == {5}
    rig.assert_clean(events=800, scored=800, version_regressions=0)


def test_a_recreated_channel_is_reported_without_a_wait_and_without_regressions(make_rig: MakeRig) -> None:
    rig = scored_at_revision_5(make_rig)
    for version in ("1.0.0", "2.0.0"):
        rig.run("model-registry", "push", str(rig.folder / version), f"{NEW}:{version}")
    rig.run("model-registry", "promote", NEW, "--to", "1.0.0")
    second = scored_in_new_registry(rig)
    assert (second.metric("scorer_model_revision"), second.metric("scorer_channel_younger")) == (1, 1)
    assert second.said.count(YOUNGER) == 1
    assert "is at revision 1, and revision 5 has scored events of" in second.said
    histories = {swap["revision"]: swap["history"] for swap in rig.swaps()}
    assert histories.keys() == {1, 5}
    assert histories[1] != histories[5]
    rig.assert_clean(events=800, scored=800, version_regressions=0)
    assert second.stop() == 0

    older = rig.start("c", "--set", f"model.source=oci:{rig.folder}/registry/model").ready()
    rig.emit(events(400, start=800))
    until(lambda: rig.answered() == 1200, "the scores of a scorer that still uses the old registry")
    assert older.metric("scorer_model_revision") == 5
    rig.assert_audited(events=1200, scored=1200, version_regressions=0)

    rig.configure(model={"source": "oci:./registry/model"})
    lineage = json.loads(rig.run("scorer", "lineage", "scorer.yaml", "e400", "--json").stdout)
    assert (lineage["cut_over"]["revision"], lineage["move"]) == (1, None)
    assert [reason for reason in lineage["not_known"] if "revision 1 belongs to another history of channel prod" in reason]
