"""A rollout in the console on a real broker, in Debian's Chromium: its recorded steps, and a person's requests."""

import time

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Page, expect

from scorer.rollout.controller import log_topic
from scorer.rollout.controller.log_records import EntryKind, Outcome, PlannedMove
from scorer.settings import load
from tests.integration.scorer.browser import barriers, chromium, console, open_page
from tests.integration.scorer.rig import STEP_SECONDS, MakeRig, Rig, events, until
from tests.support import rollouts
from tests.support.rollouts import RolloutRecord

expect.set_options(timeout=STEP_SECONDS * 1_000)


def write_records(rig: Rig, *records: RolloutRecord, junk: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    """Write these records into the topic of rollouts, the junk first."""
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers})
    for key, value in (*junk, *map(rollouts.record, records)):
        producer.produce(f"{rig.name}.rollouts", value, key)
    assert producer.flush(STEP_SECONDS) == 0


JUNK = (
    (b"r/1", b"{"),
    (b"\xff/\xff", b"\xff"),
    (b"r/state", b"[" * 10_000),
    (b"rescore/job/0", b"{}"),
    (b"q/0", b'{"rollout": "q"}'),
)


def rollout_is_followed(rig: Rig, page: Page) -> None:
    """Its steps appear as they are recorded, without a reload."""
    expect(page.locator("#plan")).to_contain_text("No rollout was started.")
    page.evaluate("document.body.dataset.kept = 'yes'")
    now = time.time()
    write_records(
        rig,
        *rollouts.in_canary(now),
        rollouts.state(now, 1, waits=["canary 5 % is done: approve or abort"], for_person=True),
        junk=JUNK,
    )
    expect(page.locator("#plan .now")).to_contain_text("canary 5 %")
    expect(page.locator("#plan .done")).to_have_count(1)
    expect(page.locator("#plan progress")).to_have_attribute("max", "900")
    expect(page.locator("#plan")).to_contain_text("Waiting for approval")
    expect(page.locator("#rules")).to_contain_text("within its margin")
    expect(page.locator("#rules svg.interval.good rect.edge")).to_have_count(1)
    expect(page.locator("#rules .matrix .flip")).to_have_text("100")
    expect(page.locator("#decisions")).to_contain_text("to move to 2.0.0 as canary for 5 %, promote")
    expect(page.locator("#decisions tbody tr")).to_have_count(5)
    assert page.evaluate("document.body.dataset.kept") == "yes"


def controller_is_asked(rig: Rig, page: Page) -> None:
    """What a form asks for is what its command would write; the controller finds it in the topic."""
    form = page.locator("form[action='/actions/ask']")
    for verb, reason in (("approve", "it's good"), ("pause", "lunch")):
        form.get_by_label("Request").select_option(verb)
        form.get_by_label("Reason").fill(reason)
        expect(page.locator("#cli-ask pre")).to_contain_text(f"scorer rollout {verb} scorer.yaml")
        form.get_by_role("button").click()
        expect(page.locator("#actions")).to_contain_text(f"requested to {verb} r")
    expect(page.locator("#plan .pill", has_text="paused")).to_be_visible()
    expect(page.locator("#plan .pill", has_text="waiting for approval")).to_have_count(0)
    with log_topic.open_log(load(rig.path, []).settings) as ledger:
        assert ledger.running is not None
        assert ([*ledger.running.approved], ledger.running.paused) == ([1], True)


def end_is_shown(rig: Rig, page: Page) -> None:
    now = time.time()
    judgement = rollouts.judgement(0.02, 0.01, 0.03)
    back = rollouts.entry(
        now, 5, EntryKind.INTENDED, 1, move=PlannedMove(3, restores=1), verdict="roll back", why=["errors"], judgement=judgement
    )
    ended = rollouts.entry(now, 7, EntryKind.ENDED, 1, outcome=Outcome.ROLLED_BACK)
    write_records(rig, back, rollouts.entry(now, 6, EntryKind.MOVED, 1, revision=4), ended)
    expect(page.locator("#plan .pill", has_text="rolled back")).to_be_visible()
    expect(page.locator("#plan .ended")).to_contain_text("canary 5 %")
    expect(page.locator("#rules")).to_contain_text("beyond its margin")


@pytest.mark.debian("chromium")
def test_a_rollout_is_followed_and_its_controller_asked_in_the_browser(make_rig: MakeRig) -> None:
    rig = make_rig().stocked(versions=2)
    rig.start().ready()
    rig.emit(events(40))
    until(lambda: rig.answered() == 40, "the scores")
    complaints: list[str] = []
    with console(rig, "--allow-actions") as address, chromium() as browser:
        page = open_page(browser, complaints)
        page.goto(address)
        rollout_is_followed(rig, page)
        for path, shown in (("/", "#plan"), ("/scores", "#pairs")):
            page.goto(f"{address}{path}")
            expect(page.locator(shown)).to_contain_text("Candidate 2.0.0, champion 1.0.0")
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                assert barriers(page) == [], (path, scheme)
        expect(page.locator("#pairs")).to_contain_text("4,000 events that both scored")
        page.goto(address)
        controller_is_asked(rig, page)
        end_is_shown(rig, page)
    assert complaints == []
