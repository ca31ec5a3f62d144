"""Versions that harm the process that loads them: the serving process never notices, at a start and while it serves."""

from pathlib import Path

from model_registry.channels import channel
from model_registry.oci import reference
from model_registry.stores.open import open_store
from scorer.crash_isolation.in_flight_journal import InFlightJournal, journal_path
from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.integration.scorer.test_shadow import numbers_of, of, reached, serves
from tests.integration.scorer.test_shadow import start as start_shadow
from tests.support import hostile_models

EVENTS = 120
DIED = 'scorer_version_trials_total{{outcome="died"}} {}.0'


def hostile(rig: Rig, name: str, version: str) -> None:
    rig.push_unchecked(hostile_models.package(rig.folder / version, hostile_models.HOSTILE[name]), version)


def refused(rig: Rig, version: str) -> str:
    """Return the reason why the running scorer refuses a version, once it does."""
    reasons: list[str] = []

    def known() -> bool:
        running = [replica for replica in rig.fleet() if replica["state"] == "running"]
        reasons[:] = [replica["refused"][version] for replica in running if version in replica["refused"]]
        return bool(reasons)

    until(known, f"the refusal of {version}")
    return reasons[0]


def answered(rig: Rig, count: int) -> int:
    """So many events before; 120 more are answered."""
    rig.emit(events(EVENTS, start=count))
    until(lambda: rig.answered() == count + EVENTS, "all answers")
    return count + EVENTS


def test_every_event_is_answered_while_the_channel_names_versions_that_harm_the_process_that_loads_them(
    make_rig: MakeRig,
) -> None:
    """One overflows the stack at its load, as canary and as champion; another takes 3 GB."""
    rig = make_rig(model={"load_bytes": "400MiB", "load_seconds": 100.0}).stocked(2)
    hostile(rig, "deep-tree", "2.0.0")
    hostile(rig, "folded", "3.0.0")
    scorer = rig.start().ready()
    count = answered(rig, 0)

    rig.run("scorer", "promote", "scorer.yaml", "--to", "2.0.0", "--canary", "50%")
    assert "was ended by SIGSEGV" in refused(rig, "2.0.0")
    count = answered(rig, count)
    assert (scorer.deaths, scorer.stop()) == (0, 0)
    scorer = rig.start("b").ready()
    assert "was ended by SIGSEGV" in refused(rig, "2.0.0")
    count = answered(rig, count)

    rig.promote("2.0.0")
    until(lambda: DIED.format(2) in scorer.get("/metrics")[1], "the trial as champion")
    count = answered(rig, count)
    rig.promote("3.0.0")
    assert "400 MiB (model.load_bytes)" in refused(rig, "3.0.0")
    count = answered(rig, count)
    assert (scorer.deaths, scorer.stop()) == (0, 0)
    scorer = rig.start("c").ready()
    count = answered(rig, count)
    assert "waiting for a newer revision" not in scorer.said
    assert {r["version"] for r in rig.scores()} == {"1.0.0"}
    assert rig.dead() == []
    assert scorer.metric("scorer_version_load_seconds") == 0.0
    rig.assert_clean(events=count)
    assert (scorer.deaths, scorer.stop()) == (0, 0)


def await_load(rig: Rig, version: str) -> None:
    """Wait until the scorer notes that it loads this version."""
    digest = channel.resolve(open_store(reference.parse("oci:./registry/model", base_dir=rig.folder)), version).digest
    note = journal_path(rig.folder / "cache", f"{rig.name}.a")
    until(lambda: InFlightJournal(note).loads()[0].startswith(digest), f"the load of {version}")


def test_the_channel_is_followed_while_a_load_does_not_end_and_two_deaths_in_it_refuse_the_version(make_rig: MakeRig) -> None:
    rig = make_rig(model={"load_seconds": 500.0}).stocked(2, versions=2)
    hostile(rig, "endless", "3.0.0")
    scorer = rig.start().ready()
    rig.run("scorer", "promote", "scorer.yaml", "--to", "3.0.0", "--canary", "50%")
    for _ in range(2):
        await_load(rig, "3.0.0")
        scorer.kill()  # all its processes at once, as the kernel does to a container
        scorer = rig.start()
        until(lambda: "a process died while it loaded a version" in scorer.said, "the predecessor's death")  # noqa: B023
    scorer.ready()
    assert "2 processes died while they loaded it" in refused(rig, "3.0.0")
    count = answered(rig, 0)

    rig.promote("3.0.0", "try it again")
    await_load(rig, "3.0.0")
    count = answered(rig, count)
    rig.promote("2.0.0", "without it")
    until(lambda: "2.0.0" in {replica["versions"]["champion"]["version"] for replica in rig.fleet()}, "the next version")
    assert "the channel no longer names version 3.0.0" in scorer.said
    count = answered(rig, count)
    rig.assert_clean(events=count)
    assert (scorer.deaths, scorer.stop()) == (0, 0)


def test_a_shadow_refuses_a_candidate_that_kills_the_process_that_loads_it_and_scores_the_next_candidate(
    make_rig: MakeRig,
) -> None:
    rig = make_rig(shadow={"share": 100}).stocked(2, versions=2)
    hostile(rig, "deep-tree", "3.0.0")
    champion, shadow = rig.start().ready(), start_shadow(rig)
    rig.run("scorer", "promote", "scorer.yaml", "--to", "1.0.0", "--shadow", "3.0.0")
    assert "was ended by SIGSEGV" in refused(rig, "3.0.0")
    until(lambda: "version 3.0.0 is refused: " in shadow.said, "the refusal in the shadow's log")
    count = answered(rig, 0)
    until(lambda: reached(rig) == rig.ends(), "the shadow's offsets")

    rig.run("scorer", "promote", "scorer.yaml", "--to", "1.0.0", "--shadow", "2.0.0")
    until(lambda: serves(rig, "shadow"), "the next candidate in the shadow")
    count = answered(rig, count)
    until(lambda: reached(rig) == rig.ends(), "the shadow's offsets")
    scored = of(rig, range(EVENTS, count))
    assert (numbers_of(scored), {r["version"] for r in scored}) == (list(range(EVENTS, count)), {"2.0.0"})
    assert shadow.metric("scorer_versions_refused_total") == 1
    assert {r["version"] for r in rig.scores()} == {"1.0.0"}
    rig.assert_clean(events=count, dead_lettered=0)
    assert [process.deaths for process in (champion, shadow)] == [0, 0]
    assert [process.stop() for process in (champion, shadow)] == [0, 0]


def test_commands_report_a_version_that_kills_the_process_that_loads_it(make_rig: MakeRig) -> None:
    rig = make_rig().stocked(1)
    folder: Path = hostile_models.package(rig.folder / "deadly", hostile_models.deep_tree)
    assert "SIGSEGV" in rig.run("model-registry", "push", str(folder), "oci:./registry/model:2.0.0", code=3).stderr
    rig.push_unchecked(folder, "2.0.0")
    for arguments in (["compare", "scorer.yaml", "2.0.0"], ["compare", "scorer.yaml", str(folder)]):
        assert "was ended by SIGSEGV" in rig.run("scorer", *arguments, code=3).stderr
    rig.promote("2.0.0")
    assert "was ended by SIGSEGV" in rig.run("scorer", "check", "scorer.yaml", code=1).stderr
    assert "was ended by SIGSEGV" in rig.run("scorer", "bench", "oci:./registry/model:2.0.0", code=3).stderr
