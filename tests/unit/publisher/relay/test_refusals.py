"""Where a copy may go on: every fact that does not fit is a refusal, and all else is the checkpoint or the beginning."""

from dataclasses import replace

import msgspec
import pytest

from publisher.kafka.topics import Bounds, Topic
from publisher.relay.checkpoints import Checkpoint, Place
from publisher.relay.start_position import End, Refused, start

PLACE = Place("r", "eu", "scores", 2)
SOURCE = End("A", "scores", Topic("s1", 4), Bounds(10, 90))
DESTINATION = End("B", "scores", Topic("d1", 4), Bounds(0, 50))
EMPTY = replace(DESTINATION, bounds=Bounds(0, 0))
STORED = Checkpoint(40, "A", "s1", "B", "scores", "d1")
ELSEWHERE = {Place("other", "asia", "scores", 2): Checkpoint(7, "C", "x", "B", "scores", "d1")}


def changed(**fields: object) -> Checkpoint:
    return msgspec.structs.replace(STORED, **fields)


def test_a_checkpoint_that_fits_is_where_it_goes_on() -> None:
    assert start(PLACE, STORED, {}, SOURCE, DESTINATION, [0, 1, 2, 3]) == 40
    for edge in (10, 90):
        assert start(PLACE, changed(next=edge), {}, SOURCE, DESTINATION, [2]) == edge


def test_a_new_partition_begins_where_its_log_does() -> None:
    assert start(PLACE, None, {}, SOURCE, EMPTY, []) == 10
    assert start(PLACE, None, {}, SOURCE, EMPTY, [0, 1]) == 10
    assert start(PLACE, None, ELSEWHERE, SOURCE, DESTINATION, []) == 10  # another source put its data there


REFUSED = {
    "truncated": (changed(next=9), SOURCE, DESTINATION, "offsets 9 to 9 were deleted before they were copied"),
    "behind the end": (changed(next=91), SOURCE, DESTINATION, "ends at 90"),
    "another cluster": (STORED, replace(SOURCE, cluster="Z"), DESTINATION, "is of cluster A, eu now is cluster Z"),
    "made again": (STORED, replace(SOURCE, topic=Topic("s2", 4)), DESTINATION, "its id was s1, now it is s2"),
    "destination made again": (STORED, SOURCE, replace(DESTINATION, topic=Topic("d2", 4)), "its id was d1, now it is d2"),
    "another destination": (STORED, SOURCE, replace(DESTINATION, cluster="Y"), "in cluster B, the destination now is"),
    "another name there": (STORED, SOURCE, replace(DESTINATION, name="copies"), "is of scores in cluster B"),
    "lost": (None, SOURCE, DESTINATION, "holds data up to offset 50"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_with_both_facts_and_the_command(case: str) -> None:
    stored, source, destination, fact = REFUSED[case]
    with pytest.raises(Refused) as caught:
        start(PLACE, stored, {}, source, destination, [])
    assert fact in str(caught.value)
    assert "publisher checkpoint set CONFIG --topic scores" in caught.value.hint
    assert caught.value.exit_code == 3


def test_one_lost_among_others_is_not_taken_for_a_new_one() -> None:
    with pytest.raises(Refused, match="higher partitions have"):
        start(PLACE, None, {}, SOURCE, EMPTY, [0, 1, 3])


def test_two_relays_do_not_copy_the_same_into_the_same() -> None:
    twin = {Place("twin", "eu", "scores", 2): STORED}
    with pytest.raises(Refused, match="relay 'twin' copies"):
        start(PLACE, STORED, twin, SOURCE, DESTINATION, [2])
