"""A scorer with few descriptors whose health port is flooded, on the real broker."""

from tests.integration.scorer.rig import MakeRig, events, until
from tests.support.flood import ConnectionFlood
from tests.support.processes import command

FEW_DESCRIPTORS = 256
COUNT = 200


def test_a_flood_of_the_health_port_stops_neither_scores_nor_a_promotion(make_rig: MakeRig) -> None:
    rig = make_rig().stocked(versions=2)
    rig.program = ["sh", "-c", f'ulimit -n {FEW_DESCRIPTORS}; exec "$0" "$@"', command("scorer")]
    scorer = rig.start("a").ready()
    with ConnectionFlood(scorer.endpoint) as flood:
        until(flood.full.is_set, "the flood")
        rig.emit(events(COUNT))
        until(lambda: rig.answered() >= COUNT, "scores of the first version")
        assert scorer.get("/livez")[0] == 200
        rig.promote("2.0.0")
        rig.emit(events(COUNT, start=COUNT))
        until(lambda: rig.answered() >= 2 * COUNT, "scores while flooded")
        until(lambda: rig.fleet()[0]["versions"]["champion"]["version"] == "2.0.0", "the promoted version")
        assert [scorer.get(path)[0] for path in ("/livez", "/readyz", "/metrics")] == [200, 200, 200]
        assert flood.opened > flood.closed > 0
    rig.assert_clean(events=2 * COUNT, scored=2 * COUNT)
    assert scorer.stop() == 0
