"""`python -m tests.docs.console_picture`: take the picture of the console that the pages show, `deploy/console.png`.

Starts a Kafka broker, two scorers of the demo's model and the console, scores flights, and promotes a version in the browser.
It needs Debian's Chromium (`apt-get install chromium`) and takes about a minute. Times and offsets differ between two pictures.
"""

import argparse
import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from playwright.sync_api import Browser, FloatRect, Page, expect

from scorer.demo import flights
from scorer.demo.broker.embedded import EmbeddedBroker
from tests.integration.scorer.browser import chromium, console
from tests.integration.scorer.rig import STEP_SECONDS, Rig, until
from tests.support.environment import ROOT

PICTURE = ROOT / "deploy" / "console.png"
WIDTH, MARGIN = 1280, 24  # pixels
PARTITIONS = 6
FLIGHTS = 3_000  # before the promotion, and again after it
USER_HEADER = "X-Forwarded-User"
OPERATOR = "alice"
REASON = "recalibrated, better AUC"


def main() -> int:
    """Take the picture and print its path. Return 0, or 2 if there is no Chromium."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs.console_picture", description=__doc__)
    parser.add_argument("--to", type=Path, default=PICTURE, help="the file to write (default: deploy/console.png)")
    path = parser.parse_args().to
    if shutil.which("chromium") is None:
        print("Chromium is missing: apt-get install chromium", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the processes that were started
    expect.set_options(timeout=STEP_SECONDS * 1_000)
    with running_rig() as rig, console(rig, "--allow-actions", "--user-header", USER_HEADER) as address, chromium() as browser:
        take_picture(rig, browser, address, path)
    print(path)
    return 0


@contextlib.contextmanager
def running_rig() -> Iterator[Rig]:
    """Yield two scorers that serve version 1.0.0 of the demo's model and have scored flights."""
    with tempfile.TemporaryDirectory(prefix="scorestream-console-") as folder, EmbeddedBroker() as broker:
        rig = Rig(
            broker.bootstrap_servers,
            Path(folder),
            "flight-delay",
            input={"topics": ["flights"], "id": "flight_id"},
            output={"topic": "flights.scores"},
        )
        with contextlib.closing(rig):
            for version in ("1.0.0", "2.0.0"):
                rig.push(flights.DATA / f"flight-delay-{version}", version)
            rig.promote("1.0.0", "first version")
            rig.create(PARTITIONS)
            for replica in ("a", "b"):
                rig.start(replica)
            until(lambda: shared_partitions(rig) == [PARTITIONS // 2] * 2, "two scorers that share the partitions")
            emit_flights(rig)
            yield rig


def shared_partitions(rig: Rig) -> list[int]:
    """Return the number of partitions of each scorer."""
    return [len(row["partitions"]) for row in rig.fleet()]


def emit_flights(rig: Rig) -> None:
    """Write flights to the input topic."""
    rig.emit(islice(flights.events(), FLIGHTS), key="{carrier}-{flight}")


def take_picture(rig: Rig, browser: Browser, address: str, path: Path) -> None:
    """Promote 2.0.0 in the browser, score more flights, and write the picture once every partition shows the version."""
    page = browser.new_page(viewport={"width": WIDTH, "height": WIDTH}, extra_http_headers={USER_HEADER: OPERATOR})
    page.goto(address)
    expect(page.locator("#squares li")).to_have_count(PARTITIONS)
    promote(page)
    emit_flights(rig)
    expect(page.locator("#squares li", has_text="2.0.0")).to_have_count(PARTITIONS)
    expect(page.locator("#flips tbody tr", has_text=REASON)).to_have_count(PARTITIONS)
    page.locator("form[action='/actions/rollback']").get_by_label("Reason").fill("calibration is off at night")
    bottom = page.evaluate("document.querySelector('[aria-labelledby=move-title]').getBoundingClientRect().bottom + scrollY")
    clip: FloatRect = {"x": 0, "y": 0, "width": WIDTH, "height": bottom + MARGIN}
    page.screenshot(path=path, full_page=True, clip=clip, animations="disabled")


def promote(page: Page) -> None:
    """Promote version 2.0.0 with the form, and wait until every scorer serves it."""
    form = page.locator("form[action='/actions/promote']")
    form.get_by_label("Version").fill("2.0.0")
    form.get_by_label("Reason").fill(REASON)
    form.get_by_role("button").click()
    expect(page.locator("#hero h1")).to_have_text("prod 2.0.0")
    expect(page.locator("#hero .pill")).to_have_text("flipped")


if __name__ == "__main__":
    sys.exit(main())
