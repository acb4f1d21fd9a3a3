"""A real Chromium on the dashboard of the real program."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import runpy
import shutil
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api")

ROOT = Path(__file__).parents[3]
AXE = Path(__file__).parents[1] / "axe"
PATIENCE = 120  # seconds: the machine may be busy
WIDTHS = {"desktop": 1280, "phone": 380}


@pytest.fixture(scope="session")
def chromium():
    """A running Chromium; without one the tests are skipped."""
    script = runpy.run_path(str(ROOT / "lab" / "experiments" / "chromium.py"))
    program = script["find"]()
    if program is None:
        pytest.skip("there is no Chromium: `python lab/experiments/chromium.py --set-up`, or apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=str(program), args=list(script["FLAGS"]), env=script["environment"](program)
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe():
    """The checker of accessibility, as it was fetched."""
    script = gzip.decompress((AXE / "axe.min.js.gz").read_bytes())
    note = json.loads((AXE / "axe.json").read_text())
    assert hashlib.sha256(script).hexdigest() == note["sha256"]["axe.min.js"]
    return script.decode()


class Tab:
    """A tab with a context of its own, which remembers what went wrong in it."""

    def __init__(self, browser, service, *, scheme="light", width="desktop", role=None):
        self.context = browser.new_context(
            color_scheme=scheme,
            viewport={"width": WIDTHS[width], "height": 850},
            reduced_motion="reduce",
            accept_downloads=True,
        )
        self.service, self.complaints = service, []
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE)
        self.page.on("console", lambda said: said.type in ("error", "warning") and self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._look_at)
        self.page.goto(service.url)
        if role is not None:
            self.enter(service.keys[role])
            self.page.wait_for_selector("nav a")

    def _look_at(self, request):
        if not request.url.startswith((self.service.url, "blob:", "data:")):
            self.complaints.append(f"it asks {request.url}")

    def enter(self, key):
        """Give the key, as a person does."""
        self.page.fill("#key", key)
        self.page.click("text=Open")

    def go(self, name, *, until=None):
        """Open a page, and wait until it has what it shows."""
        self.page.evaluate("name => (location.hash = `#/${name}`)", name)
        self.page.wait_for_selector(f".page-{name} h1", state="attached")
        self.page.wait_for_selector(".loading, [aria-busy=true]", state="detached")
        if until:
            self.page.wait_for_selector(until)

    def until(self, true):
        """Wait until a script gives a true value. The page's policy allows no `wait_for_function`."""
        for _ in range(PATIENCE * 20):
            if found := self.page.evaluate(true):
                return found
            self.page.wait_for_timeout(50)
        raise AssertionError(f"it never came true: {true}")

    def violations(self, axe):
        """What the checker finds in the page as it stands."""
        if not self.page.evaluate("typeof window.axe === 'object'"):
            self.page.evaluate(axe)
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{each['id']}: {node['html'][:120]} ({node['failureSummary']})"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    def too_wide(self):
        """By how much the page is wider than its window."""
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")


@pytest.fixture
def tab(chromium, service):
    """`tab(role=…, scheme=…, width=…)`: a tab on a service that no test changes. Nothing may go wrong in it."""
    made = []

    def make(**options):
        made.append(Tab(chromium, options.pop("service", service), **options))
        return made[-1]

    yield make
    for each in made:
        each.context.close()
    assert [complaint for each in made for complaint in each.complaints] == []


@pytest.fixture(scope="module")
def busy(first_churn, tmp_path_factory, serve):
    """A service that the tests of a file may change."""
    folder = shutil.copytree(first_churn, tmp_path_factory.mktemp("busy") / "churn")
    with serve(folder) as running:
        yield running


@pytest.fixture(scope="session")
def pictures():
    """Where pictures go if $EXPUNGE_PICTURES names a folder, to be looked at."""
    folder = os.environ.get("EXPUNGE_PICTURES")
    return None if folder is None else Path(folder)
