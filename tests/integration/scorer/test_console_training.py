"""Runs of training in the console, in Debian's Chromium: attested in a real registry, verified by the scorer's policy."""

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Page, ViewportSize, expect

from tests.integration.scorer.browser import barriers, chromium, console, open_page
from tests.integration.scorer.rig import STEP_SECONDS, MakeRig, Rig
from tests.support import trained
from tests.support.recorded_runs import RecordedEvents
from tests.support.trained import Runs

expect.set_options(timeout=STEP_SECONDS * 1_000)
PHONE = ViewportSize(width=390, height=844)
WIDER = """[...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > innerWidth
    && !each.closest(".scroll, .interval, .picture")).map((each) => each.outerHTML.slice(0, 200))"""
DESKTOP = ViewportSize(width=1280, height=900)


def runs_are_listed_with_their_verdicts(page: Page) -> None:
    expect(page.locator(".runs li")).to_have_count(5)
    expect(page.locator("#newest .lead")).to_contain_text("refused auc -0.0061: the lower bound")
    claimed = page.locator(".runs li", has_text=trained.run_id(2))
    expect(claimed.locator(".pill")).to_have_text(["passed", "claimed, not verified"])
    expect(page.locator(".runs li", has_text="prod: current")).to_have_count(1)


def new_run_is_seen_without_a_reload(page: Page, runs: Runs) -> None:
    page.evaluate("document.body.dataset.kept = 'yes'")
    runs.run(5, because="better on every day")
    runs.promote(5)
    expect(page.locator("#newest .lead")).to_contain_text("passed better on every day")
    expect(page.locator(".runs li", has_text=trained.run_id(5)).locator(".pill.flipped")).to_have_text("prod: current")
    assert page.evaluate("document.body.dataset.kept") == "yes"


def refused_run_is_opened_by_keyboard(page: Page) -> None:
    page.locator(f"[id='run-{trained.version(4)}']").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_contain_text(trained.run_id(4))
    expect(page.locator("#rules .pill.bad")).to_have_count(2)
    expect(page.locator("#matrices svg")).to_have_count(2)
    expect(page.locator("#rungs svg circle")).to_have_count(22)
    expect(page.locator("#attested .pill.good")).to_have_text(["signed by training"] * 3)


def written(rig: Rig, events: RecordedEvents) -> None:
    """Write the collected records of a run to its topic, and forget them."""
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers})
    for key, value in events.encoded():
        producer.produce(f"{rig.name}.runs", value, key)
    assert producer.flush(STEP_SECONDS) == 0
    events.records.clear()


def running_run_is_seen_live(page: Page, address: str, rig: Rig) -> RecordedEvents:
    """Its curve grows while its lines arrive, and it fails with the end of its log, all without a reload."""
    events = RecordedEvents(20)
    events.start()
    events.trial(0, 27, {"learning_rate": 0.1})
    written(rig, events)
    page.goto(f"{address}/training")
    page.locator(f"[id='run-{events.run}']").click()
    expect(page.locator(".hero .pill")).to_have_text("running")
    page.evaluate("document.body.dataset.kept = 'yes'")
    for budget in (3, 6, 9):
        events.line(0, budget, auc=0.8 + budget / 100)
    written(rig, events)
    expect(page.locator("#curve svg circle")).to_have_count(3)
    expect(page.locator("#trial-0 td").first).to_have_text("0.8900")
    events.fail_trial(0, "exit code 1", "ValueError: no rows")
    events.fail("search", "all trials failed")
    written(rig, events)
    expect(page.locator(".hero .pill")).to_have_text("failed")
    expect(page.locator("#failure-1")).to_have_text("ValueError: no rows")
    assert page.evaluate("document.body.dataset.kept") == "yes"
    return events


def no_page_has_barriers(page: Page, address: str, *run_names: str) -> None:
    """In either scheme, and on a phone nothing but tables is wider than the screen."""
    for path in ("", *(f"?run={name}" for name in (*map(trained.version, (2, 3, 4)), *run_names))):
        page.goto(f"{address}/training{path}")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert barriers(page) == [], (path, scheme)
        page.set_viewport_size(PHONE)
        assert page.evaluate(WIDER) == [], path
        page.set_viewport_size(DESKTOP)


@pytest.mark.debian("chromium")
def test_runs_their_verdicts_and_their_pictures_in_the_browser(make_rig: MakeRig) -> None:
    rig = make_rig()
    runs = trained.a_month(rig.folder)
    rig.configure(model={"policy": "./policy.yaml"})
    rig.create()
    complaints: list[str] = []
    with console(rig) as address, chromium() as browser:
        page = open_page(browser, complaints)
        page.goto(f"{address}/training")
        runs_are_listed_with_their_verdicts(page)
        new_run_is_seen_without_a_reload(page, runs)
        refused_run_is_opened_by_keyboard(page)
        failed = running_run_is_seen_live(page, address, rig)
        no_page_has_barriers(page, address, failed.run)
    assert complaints == []
