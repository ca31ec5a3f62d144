"""Versions that scorers load or refuse by name while they continue to score; and the contents of their cache."""

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.support import models

Write = Callable[[Path], None]


def score(rig: Rig, count: int, start: int) -> None:
    rig.emit(events(count, start=start))
    until(lambda: rig.answered() == start + count, "the scores")


def in_cache(rig: Rig) -> int:
    return sum(path.is_dir() and not path.suffix for path in (rig.folder / "cache" / "versions").iterdir())


def test_container_images_are_versions_like_any_other_and_the_cache_keeps_to_its_size(make_rig: MakeRig) -> None:
    rig = make_rig(model={"cache_bytes": "6KiB"}).stocked()  # three of these versions
    scorer = rig.start().ready()
    score(rig, 20, 0)
    rig.push(models.linear_package(rig.folder / "two", 3.0), "2.0.0", "--image", "scratch", "--licenses", "Apache-2.0")
    rig.push(models.linear_package(rig.folder / "three", 4.0), "3.0.0", "--image", "oci:./registry/model:2.0.0")
    rig.push(models.linear_package(rig.folder / "four", 5.0), "4.0.0")
    for revision, version in enumerate(["2.0.0", "3.0.0", "4.0.0"], start=2):
        rig.promote(version)
        until(lambda revision=revision: scorer.metric("scorer_model_revision") == revision, version)  # type: ignore[misc]
        score(rig, 20, 20 * (revision - 1))
    until(lambda: in_cache(rig) <= 3, "room")  # serving, the one before, and one whose turn it was to be freed
    factors = {record["version"]: record["score"] / float(record["id"][1:]) for record in rig.scores() if record["id"] != "e0"}
    assert factors == {"1.0.0": 2.0, "2.0.0": 3.0, "3.0.0": 4.0, "4.0.0": 5.0}


def large(path: Path) -> None:
    path.write_bytes(b"w" * 100_001)


def truncated(path: Path) -> None:
    models.linear(path, 1.0)
    path.write_bytes(path.read_bytes()[:-20])


def linear(path: Path) -> None:
    models.linear(path, 1.0)


ANOTHER = {**models.LINEAR, "inputs": [{"tensor": "z", "dtype": "float32", "fields": ["a", "b"]}]}


def test_a_version_that_is_larger_than_the_cache_is_refused_at_the_start_and_named_in_readyz(make_rig: MakeRig) -> None:
    rig = make_rig(model={"cache_bytes": "1KiB"})
    rig.push(models.linear_package(rig.folder / "one", 2.0), "1.0.0")
    rig.promote("1.0.0")
    rig.create(code=1)
    scorer = rig.start()
    until(lambda: "is refused" in scorer.said, "the refusal")
    assert "but model.cache_bytes limits the cache to 1024 bytes" in scorer.said
    assert "hint: set model.cache_bytes to at least" in scorer.said
    until(lambda: "model.cache_bytes" in scorer.get("/readyz")[1], "the reason in readyz")
    assert in_cache(rig) == 0


REFUSED: dict[str, tuple[Write, dict[str, Any], str]] = {
    "a device": (linear, {}, "it needs device cuda, this scorer has cpu"),
    "an operator": (models.contrib, {}, "uses the operator 'Gelu' of domain 'com.microsoft', which is not allowed"),
    "too large": (large, {}, "the limit is 100000 bytes"),
    "a file outside": (models.reading_outside, {}, "keeps weights in '../secret.bin'"),
    "truncated": (truncated, {}, "onnx"),
    "wrong shape": (lambda path: models.linear(path, 1.0, width=3), {}, "the signature states (B, 2)"),
    "other input": (linear, {"signature": ANOTHER}, "z"),
    "golden": (linear, {"golden": [{"event": {"a": 1, "b": 2}, "score": 9.0, "tolerance": 1e-3}]}, "golden example 1"),
}


def test_unsafe_versions_are_refused_by_name_and_the_running_version_continues(make_rig: MakeRig) -> None:
    rig = make_rig(model={"op_domains": [], "max_bytes": 100_000}).stocked(versions=2)
    scorer = rig.start().ready()
    for number, (name, (write, options, reason)) in enumerate(REFUSED.items(), start=1):
        folder, version = models.package(rig.folder / name, write, **options), f"9.{number}.0"
        if name == "a device":
            rig.push(folder, version, "--device", "cuda")
        else:
            rig.push_unchecked(folder, version)
        rig.promote(version)
        until(lambda number=number: scorer.metric("scorer_versions_refused_total") == number, name)  # type: ignore[misc]
        (message,) = (line["message"] for line in scorer.lines() if f"{version} is refused" in line["message"])
        assert reason in message, name
        assert scorer.get("/readyz")[0] == 200
        score(rig, 20, 20 * (number - 1))
    assert {record["version"] for record in rig.scores()} == {"1.0.0"}
    rig.promote("2.0.0")
    until(lambda: scorer.metric("scorer_model_revision") == 2 + len(REFUSED), "the good version")
    until(lambda: rig.fleet()[0]["versions"]["champion"]["version"] == "2.0.0", "the status record")
    rig.promote("9.1.0")
    assert REFUSED["a device"][2] in rig.run("scorer", "check", "scorer.yaml", code=1).stderr
    rig.configure(model={"op_domains": ["com.microsoft"]})
    rig.promote("9.2.0")
    until(lambda: scorer.metric("scorer_versions_refused_total") == len(REFUSED) + 2, "its refusal by the running scorer")
    rig.run("scorer", "check", "scorer.yaml")


def test_a_full_disk_stops_no_scoring_and_the_next_try_succeeds(make_rig: MakeRig) -> None:
    rig = make_rig().stocked()
    scorer = rig.start().ready()
    package = models.linear_package(rig.folder / "two", 3.0)
    (package / "weights.bin").write_bytes(b"w" * 2_000_000)
    rig.push_unchecked(package, "2.0.0")
    unlimited = resource.prlimit(scorer.worker, resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    rig.promote("2.0.0")
    until(lambda: "File too large" in scorer.said, "the failure")
    score(rig, 50, 0)
    assert in_cache(rig) == 1
    resource.prlimit(scorer.worker, resource.RLIMIT_FSIZE, unlimited)
    until(lambda: scorer.metric("scorer_model_revision") == 2, "the version")
    assert scorer.metric("scorer_versions_refused_total") == 0
    score(rig, 50, 50)
    assert {record["version"] for record in rig.scores()} == {"1.0.0", "2.0.0"}
