"""Figures of scores with several named outputs use the deciding output."""

from scorer.evaluation.decision_output import DecidedOutputs
from scorer.rollout.canary_analysis.paired_metrics import VersionAnswer

NAMES = {"sha256:a": "risk", "sha256:b": None}
SCORE = {"amount": 7.0, "risk": 0.25}


def test_an_output_is_looked_up_once_and_only_for_scores_with_several_outputs() -> None:
    requested_digests: list[str] = []

    def find(digest: str) -> str | None:
        requested_digests.append(digest)
        return NAMES[digest]

    outputs = DecidedOutputs(find)
    assert [outputs.score("sha256:a", score) for score in (0.5, [0.1, 0.9], None, {"only": 0.3})] == [
        0.5,
        [0.1, 0.9],
        None,
        0.3,
    ]
    assert not requested_digests
    assert [outputs.score("sha256:a", SCORE) for _ in range(3)] == [0.25] * 3
    assert requested_digests == ["sha256:a"]


def test_a_version_without_a_known_output_has_no_number_and_is_counted() -> None:
    outputs = DecidedOutputs(NAMES.__getitem__)
    assert [outputs.score("sha256:b", SCORE) for _ in range(2)] == [None, None]
    assert outputs.unknown == {"sha256:b": 2}


def test_answers_keep_everything_but_the_other_outputs() -> None:
    outputs = DecidedOutputs(NAMES.__getitem__)
    plain = [VersionAnswer("sha256:a", "scored", 1, "e1", 0.5, "low")]
    assert outputs.answers(plain) is plain
    several = [VersionAnswer("sha256:a", "scored", 1, "e1", SCORE, "low"), VersionAnswer("sha256:a", "dead_lettered")]
    assert outputs.answers(several) == [VersionAnswer("sha256:a", "scored", 1, "e1", 0.25, "low"), several[1]]
