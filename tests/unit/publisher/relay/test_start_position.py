"""The start position of a copied partition: its checkpoint or the start of the log. Contradicting facts are refused."""

from dataclasses import replace

import msgspec
import pytest

from publisher.kafka.topics import Bounds, Topic
from publisher.relay.checkpoints import Checkpoint, CheckpointKey
from publisher.relay.start_position import CopyEndpoint, CopyRefused, start

KEY = CheckpointKey("r", "eu", "scores", 2)
SOURCE = CopyEndpoint("A", "scores", Topic("s1", 4), Bounds(10, 90))
DESTINATION = CopyEndpoint("B", "scores", Topic("d1", 4), Bounds(0, 50))
EMPTY = replace(DESTINATION, bounds=Bounds(0, 0))
STORED = Checkpoint(40, "A", "s1", "B", "scores", "d1")
ELSEWHERE = {CheckpointKey("other", "asia", "scores", 2): Checkpoint(7, "C", "x", "B", "scores", "d1")}


def changed(**fields: object) -> Checkpoint:
    return msgspec.structs.replace(STORED, **fields)


def test_a_copy_starts_at_a_matching_checkpoint() -> None:
    assert start(KEY, STORED, {}, SOURCE, DESTINATION, [0, 1, 2, 3]) == 40
    for edge in (10, 90):
        assert start(KEY, changed(next=edge), {}, SOURCE, DESTINATION, [2]) == edge


def test_the_copy_of_a_new_partition_starts_at_the_start_of_its_log() -> None:
    assert start(KEY, None, {}, SOURCE, EMPTY, []) == 10
    assert start(KEY, None, {}, SOURCE, EMPTY, [0, 1]) == 10
    assert start(KEY, None, ELSEWHERE, SOURCE, DESTINATION, []) == 10  # data of another source


REFUSED = {
    "truncated": (changed(next=9), SOURCE, DESTINATION, "offsets 9 to 9 were deleted before they were copied"),
    "behind the end": (changed(next=91), SOURCE, DESTINATION, "ends at 90"),
    "another cluster": (STORED, replace(SOURCE, cluster="Z"), DESTINATION, "is from cluster A, but eu is now cluster Z"),
    "recreated": (STORED, replace(SOURCE, topic=Topic("s2", 4)), DESTINATION, "its id was s1, now it is s2"),
    "destination recreated": (STORED, SOURCE, replace(DESTINATION, topic=Topic("d2", 4)), "its id was d1, now it is d2"),
    "another destination": (STORED, SOURCE, replace(DESTINATION, cluster="Y"), "in cluster B, but the destination is now"),
    "another name there": (STORED, SOURCE, replace(DESTINATION, name="copies"), "is for topic scores in cluster B"),
    "lost": (None, SOURCE, DESTINATION, "holds data up to offset 50"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_contradicting_facts_are_refused_with_both_and_the_command(case: str) -> None:
    stored, source, destination, fact = REFUSED[case]
    with pytest.raises(CopyRefused) as caught:
        start(KEY, stored, {}, source, destination, [])
    assert fact in str(caught.value)
    assert "publisher checkpoint set CONFIG --topic scores" in caught.value.hint
    assert caught.value.exit_code == 3


def test_a_lost_checkpoint_is_distinguished_from_a_new_partition() -> None:
    with pytest.raises(CopyRefused, match="partitions with higher numbers have one"):
        start(KEY, None, {}, SOURCE, EMPTY, [0, 1, 3])


def test_two_relays_do_not_copy_one_partition_into_the_same_topic() -> None:
    twin = {CheckpointKey("twin", "eu", "scores", 2): STORED}
    with pytest.raises(CopyRefused, match="relay 'twin' already copies"):
        start(KEY, STORED, twin, SOURCE, DESTINATION, [2])
