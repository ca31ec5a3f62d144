"""The console on a real broker and a real registry, in Debian's Chromium; and its pages when both are unavailable."""

import json
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.integration.scorer.browser import barriers, chromium, console, open_page
from tests.integration.scorer.rig import STEP_SECONDS, MakeRig, Rig, events, until

SCORED, DEAD = 80, 2
expect.set_options(timeout=STEP_SECONDS * 1_000)


def fetched(address: str, host: str) -> httpx.Response:
    return httpx.get(address, headers={"Host": host}, timeout=STEP_SECONDS)


def swap_is_seen_live(rig: Rig, page: Page) -> None:
    """A version promoted elsewhere shows without a reload, and its cut-over with the first batch."""
    expect(page.locator("#hero h1")).to_have_text("prod 1.0.0")
    page.evaluate("document.body.dataset.kept = 'yes'")
    rig.promote("2.0.0", "from elsewhere")
    expect(page.locator("#hero h1")).to_have_text("prod 2.0.0")
    expect(page.locator("#hero .pill")).to_have_text("flipped")
    rig.emit(events(SCORED // 2, start=100))
    row = page.locator("#flips tbody tr", has_text="from elsewhere").first
    expect(row).to_contain_text("1.0.0")
    swaps = [swap for swap in rig.swaps() if swap["version"] == "2.0.0"]
    expect(page.locator("#flips")).to_contain_text(str(swaps[0]["cut_over_offset"]))
    assert page.evaluate("document.body.dataset.kept") == "yes"


def version_is_rolled_back(rig: Rig, page: Page) -> None:
    """With a reason, which the history shows; the command beside the form is the one that does the same."""
    form = page.locator("form[action='/actions/rollback']")
    form.get_by_label("Reason").fill("it's worse")
    expect(form.locator("pre")).to_contain_text("""--reason 'it'"'"'s worse'""")
    form.get_by_role("button").click()
    expect(page.locator("#actions")).to_contain_text("prod is at revision 3 and names 1.0.0")
    expect(page.locator("#hero h1")).to_have_text("prod 1.0.0")
    expect(page.locator("#hero .pill")).to_have_text("flipped")
    history = rig.run("model-registry", "history", "oci:./registry/model", "--json").stdout
    last = json.loads(history)["moves"][-1]
    assert (last["reason"], last["restores"]) == ("it's worse", 1)
    assert last["actor"].endswith("(console)")


def impossible_promotion_is_reported(page: Page) -> None:
    form = page.locator("form[action='/actions/promote']")
    form.get_by_label("Version").fill("9.9.9")
    form.get_by_label("Reason").fill("no such thing")
    form.get_by_role("button").click()
    expect(page.locator("#actions .failed")).to_contain_text("the available versions are: 1.0.0, 2.0.0")
    expect(page.locator("#hero h1")).to_have_text("prod 1.0.0")


def letters_are_replayed(rig: Rig, page: Page) -> None:
    page.get_by_role("link", name="Dead letters").click()
    expect(page.locator("#letters details")).to_have_count(DEAD)
    page.locator("#letters summary").first.click()
    expect(page.locator("#letters details[open] pre")).to_contain_text('"one"')
    page.get_by_label("Reason").select_option("wrong-type")
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.locator("#actions")).to_contain_text("2 replayed, 0 replayed before")
    expect(page.locator("#letters").get_by_text("wrong-type, replayed")).to_have_count(DEAD)
    until(lambda: rig.answered() == SCORED + 2 * DEAD, "the replayed events to die again")


@pytest.mark.debian("chromium")
def test_a_swap_a_rollback_and_a_replay_in_the_browser(make_rig: MakeRig) -> None:
    rig = make_rig().stocked(versions=2)
    rig.start().ready()
    broken = [{"id": f"bad{n}", "key": "k", "a": "one", "b": 0.0} for n in range(DEAD)]
    rig.emit([*events(SCORED // 2), *broken])
    complaints: list[str] = []
    with console(rig, "--allow-actions") as address, chromium() as browser:
        page = open_page(browser, complaints)
        page.goto(address)
        swap_is_seen_live(rig, page)
        version_is_rolled_back(rig, page)
        impossible_promotion_is_reported(page)
        letters_are_replayed(rig, page)
        for path in ("/", "/scores", "/flow", "/regions", "/dead-letters", "/history", "/training"):
            page.goto(f"{address}{path}")
            page.emulate_media(color_scheme="light")
            assert barriers(page) == [], path
            page.emulate_media(color_scheme="dark")
            assert barriers(page, "color-contrast") == [], path
        page.goto(f"{address}/scores")
        expect(page.locator(".chart canvas")).to_be_visible()
    assert complaints == []


def test_a_console_reports_unavailable_sources_and_is_read_only(make_rig: MakeRig, tmp_path: Path) -> None:
    rig = make_rig()
    (tmp_path / "registry").write_text("no folder")
    flags = ("--set", "kafka.bootstrap_servers=127.0.0.1:1", "--allow-host", "console.example.com", "--user-header", "X-User")
    with console(rig, *flags) as address:
        until(lambda: fetched(address, "localhost").text.count("is unavailable</strong>") == 2, "both errors")
        page = fetched(address, "console.example.com").text
        assert "no Kafka broker answers at 127.0.0.1:1" in page
        assert "read-only" in page
        assert fetched(address, "elsewhere.example.com").status_code == 400
        listen_address = address.removeprefix("http://")
        assert "cannot listen" in rig.run("scorer", "console", "scorer.yaml", "--listen", listen_address, code=2).stderr
    unread = rig.run("scorer", "console", "scorer.yaml", "--set", "model.policy=gone.yaml", "--listen", "127.0.0.1:0", code=2)
    assert "gone.yaml" in unread.stderr
