"""A `scorer console` that runs, and Debian's Chromium in front of it."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from tests.integration.scorer.rig import STEP_SECONDS, Rig, command, until
from tests.support.processes import Program

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def console(rig: Rig, *flags: str) -> Iterator[str]:
    """Yield the address of a console, which must end with 0 when it is stopped."""
    arguments = [command("scorer"), "console", "scorer.yaml", "--listen", "127.0.0.1:0", *flags]
    running = Program(arguments, rig.folder / "console.log", cwd=rig.folder)
    try:
        until(lambda: "console is at" in running.said or running.ended, "the address of the console")
        address = re.search(r"console is at (http://[^\s/]+)", running.said)
        assert address, running.said
        yield address[1]
        assert running.stop() == 0, running.said
    finally:
        running.kill()


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield browser
        browser.close()


def open_page(browser: Browser, complaints: list[str]) -> Page:
    """A tab; what its console complains of (a blocked script, an exception) goes to `complaints`."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(STEP_SECONDS * 1_000)
    page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    return page


def barriers(page: Page, *rules: str) -> list[Any]:
    """What axe finds: barriers to people who use assistive technology; by all of its rules, or only these."""
    violations: list[Any] = Axe().run(page, options={"runOnly": list(rules)} if rules else {}).response["violations"]
    return [(each["id"], [node["html"] for node in each["nodes"]]) for each in violations]
