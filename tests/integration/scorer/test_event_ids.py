"""Ids of events that identify nothing, or cannot be read: every score still has a unique id."""

from tests.integration.scorer.rig import MakeRig, until


def test_each_score_has_a_unique_id(make_rig: MakeRig) -> None:
    rig = make_rig(input={"id": "id"}).stocked(1)
    scorer = rig.start().ready()
    event, plain = b'{"id": "%s", "a": 1, "b": 0}', b'{"a": 1, "b": 0}'
    invalid_ids = [b"a\xff", b"a\xfe"]
    for number in range(2):
        rig.produce(event % b"f%d" % number, key=b"k", headers=[("ce_id", b"")])
        rig.produce(event % b"", key=b"k")
        rig.produce(plain, key=b"k", headers=[("ce_id", b""), ("x-origin", b"")])
        rig.produce(plain, key=b"k", headers=[("ce_id", invalid_ids[number])])
        rig.produce(plain, key=b"k", headers=[("x-origin", invalid_ids[number])])
        rig.produce(event % invalid_ids[number], key=b"k")
    rig.emit([event % b"" for _ in range(200)], key="k")  # one batch, as columns
    until(lambda: rig.answered() == 212, "all answers")
    ids = [record["id"] for record in rig.scores()]
    assert len(ids) == len(set(ids)) == 206
    assert {"f0", "f1"} < set(ids)
    assert all(name and "\N{REPLACEMENT CHARACTER}" not in name for name in ids)
    assert sorted(letter["reason"] for letter in rig.dead()) == ["not-utf8"] * 6
    rig.assert_clean(events=212, scored=206)
    assert scorer.stop() == 0
