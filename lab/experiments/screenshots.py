"""Pictures of every page that expunge writes: light, dark, on a phone, and printed; kept in docs/figures/pages.

    python lab/experiments/screenshots.py                      make all pages and pictures (about four minutes)
    python lab/experiments/screenshots.py --only audit         those of one page
    python lab/experiments/screenshots.py --pages /tmp/pages   keep the pages too

It needs Chromium (on Debian `apt-get install chromium`) and Pillow. The pages fetch nothing. Look at the pictures after
a change: a test can only say that they are there. Keys, requests and times differ from run to run.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image, ImageOps

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures" / "pages"
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe"),
    "--disable-lcd-text",  # grey edges of letters: fewer colours
]
#: The views: width of the window, colour scheme, medium.
VIEWS = {
    "light": (900, "light", "screen"),
    "dark": (900, "dark", "screen"),
    "phone": (390, "light", "screen"),
    "print": (658, "light", "print"),  # A4 at 96 dots an inch, without the margins of the page
}
COLOURS = 32  # of a picture; text and drawings need no more
SCALE = 0.75  # of the pictures: letters can still be read
LARGEST = 150_000  # bytes of a picture
WIDE = 1180  # pixels of a window for the dashboard


def expunge(*arguments: Any, codes: tuple[int, ...] = (0,), here: Path | None = None) -> str:
    """Run the program, and return what it prints."""
    command = [sys.executable, "-m", "expunge", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=here)
    if done.returncode not in codes:
        raise SystemExit(f"expunge {' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def make_folder(place: Path) -> Path:
    """A deployment of made-up customers, and a request in it."""
    folder = place / "churn"
    if folder.exists():
        return folder
    rng = np.random.default_rng(0)
    spend = rng.normal(size=600).round(3)
    customers = pd.DataFrame(
        {
            "customer_id": np.arange(1, 601),
            "household": [f"h{number // 3}" for number in range(600)],
            "age": rng.integers(18, 80, 600),
            "spend": spend,
            "churned": np.where(spend + 0.2 * rng.normal(size=600) > 0, "yes", "no"),
        }
    )
    customers.to_csv(place / "train.csv", index=False)
    columns = ("--label", "churned", "--id", "customer_id", "--subject", "household")
    expunge("create", folder, "--data", place / "train.csv", *columns, "--shards", "10", "--minutes", "0")
    found = json.loads(expunge("delete", folder, "--id", "17", "--id", "23", "--json"))
    (place / "request").write_text(found["request"])
    expunge("audit", "recompute", folder, "--shards", "5", "--record")
    return folder


def certificate_of_a_request(place: Path, page: Path) -> None:
    """`expunge certificate --request`."""
    folder = make_folder(place)
    expunge(
        "certificate", folder, "--request", (place / "request").read_text(), "--out", place / "r.json", "--html", page
    )


def certificate_of_a_deployment(place: Path, page: Path) -> None:
    """`expunge certificate`."""
    expunge("certificate", make_folder(place), "--out", place / "d.json", "--html", page)


def letter(place: Path, page: Path) -> None:
    """`expunge letter`, to the person whose records were deleted."""
    folder = make_folder(place)
    names = ("--to", "Ann Lee", "--from", "Example Ltd", "--reference", "EX-17")
    expunge("letter", folder, "--request", (place / "request").read_text(), *names, "--out", page)


def verified(place: Path, page: Path) -> None:
    """`expunge verify --html`, of a certificate that was changed afterwards."""
    expunge("certificate", make_folder(place), "--out", place / "v.json")
    envelope = json.loads((place / "v.json").read_text())
    payload = base64.b64decode(envelope["payload"]).replace(b'"churn"', b'"chorn"')
    envelope["payload"] = base64.b64encode(payload).decode()
    (place / "v.json").write_text(json.dumps(envelope))
    expunge("verify", place / "v.json", "--html", page, codes=(0, 1))


def audit(place: Path, page: Path) -> None:
    """`expunge audit --html`."""
    options = ("--scheme", "sisa", "--trials", "60", "--seed", "1", "--html", page.name)  # the page quotes them
    expunge("audit", "lookup", *options, codes=(0, 1), here=page.parent)


def notebook(place: Path, page: Path) -> None:
    """What a notebook shows of an estimator and of a folder."""
    import expunge as package

    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    model = package.UnlearningClassifier(n_shards=5).fit(X, X[:, 0] > 0).delete([3])
    with package.open(make_folder(place)) as folder:
        cells = [model._repr_html_(), folder._repr_html_()]
    colours = ":root{color-scheme:light dark} body{margin:1.5rem;font:14px/1.4 sans-serif}"
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    page.write_text(
        f"<!DOCTYPE html><html><head>{head}<style>{colours}</style></head><body>{''.join(cells)}</body></html>"
    )


#: The pages, and the module that writes each. A test compares with the modules that write HTML.
PAGES: dict[str, tuple[str, Callable[[Path, Path], None]]] = {
    "certificate": ("evidence.page", certificate_of_a_request),
    "deployment": ("evidence.page", certificate_of_a_deployment),
    "letter": ("evidence.letter", letter),
    "verified": ("evidence.page", verified),
    "audit": ("audit.page", audit),
    "notebook": ("serving.card", notebook),
}


#: Pictures of the dashboard: what to open, and what to ask of the service beforehand.
DASHBOARD: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "overview": [],
    "requests": [],
    "what-if": [("/v1/measurements", {"seconds": 15})],
    "audit": [("/v1/recompute", {"shards": "all", "record": True}), ("/v1/audits", {"trials": 30, "records": 150})],
    "inside": [],
}
LIVE_VIEWS = ("light", "dark", "phone")
#: The modules of the service that write pages: the dashboard, and the page of the API, of which there is no picture.
SERVED = {"service.dashboard", "service.openapi"}
_VISITED = 45  # seconds of visitors before the first picture
_DRAWN = 2.5  # seconds for a page to ask and to draw


@contextmanager
def served_demo() -> Iterator[tuple[str, str]]:
    """`expunge demo --serve`: its address and the operator's key."""
    command = [sys.executable, "-m", "expunge", "demo", "--serve", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        words: list[str] = []
        while "Ctrl-C" not in words:
            line = process.stdout.readline()
            if not line:
                raise SystemExit("expunge demo --serve ended")
            words += line.split()
        url = next(each.rstrip(".") for each in words if each.startswith("http"))
        yield url, words[words.index("operator") + 1]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def ask_service(url: str, key: str, path: str, data: dict[str, Any] | None = None) -> dict[str, Any]:
    """Ask the service once."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    body = None if data is None else json.dumps(data).encode()
    with urllib.request.urlopen(urllib.request.Request(url + path, body, headers), timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def picture_dashboard(shown: Browser, out: Path) -> None:
    """Pictures of every page of the dashboard, with visitors."""
    with served_demo() as (url, key):
        time.sleep(_VISITED)
        for name, work in DASHBOARD.items():
            for path, data in work:
                ask_service(url, key, path, data)
                while _is_running(ask_service(url, key, path)):
                    time.sleep(0.5)
            for view in LIVE_VIEWS:
                path = out / f"dashboard-{name}-{view}.png"
                keep(shown.live_picture(f"{url}/#/{name}", key, view), path)
                print(f"{path}: {path.stat().st_size // 1000} kB")


def _is_running(found: dict[str, Any]) -> bool:
    jobs = [found["job"]] if "job" in found else next(iter(found.values()))
    return bool(jobs and jobs[0] and jobs[0]["state"] == "running")


class Browser:
    """Chromium, asked over two pipes (its DevTools protocol: JSON texts that end with a zero byte)."""

    def __init__(self, requests: Any, answers: Any) -> None:
        self._requests, self._answers, self._number, self._session = requests, answers, 0, ""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method, and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._requests.write(json.dumps(message).encode() + b"\0")
        self._requests.flush()
        return self._until(lambda told: told.get("id") == self._number).get("result", {})

    def _until(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            told = json.loads(self._read())
            if is_wanted(told):
                if "error" in told:
                    raise SystemExit(f"Chromium: {told['error']}")
                return told

    def _read(self) -> bytes:
        parts = bytearray()
        while (byte := self._answers.read(1)) not in (b"\0", b""):
            parts += byte
        if not parts:
            raise SystemExit("Chromium ended")
        return bytes(parts)

    def picture(self, page: Path, view: str) -> Image.Image:
        """The whole page, as it looks in a view."""
        self._look(view, VIEWS[view][0], 800)
        self.open(page.as_uri())
        picture = self._whole()
        is_print = VIEWS[view][2] == "print"
        return ImageOps.expand(picture, border=int(40 * SCALE), fill="white") if is_print else picture

    def live_picture(self, address: str, key: str, view: str) -> Image.Image:
        """A page of the dashboard, opened with a key."""
        width = WIDE if VIEWS[view][0] > 600 else VIEWS[view][0]
        self._look(view, width, 900)
        self.open(address.partition("#")[0] + "healthz")
        self.ask("Runtime.evaluate", expression=f"sessionStorage.setItem('expunge-key', {json.dumps(key)})")
        self.open(address)
        time.sleep(_DRAWN)
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        self._look(view, width, int(size["height"]))  # what is fixed to the window ends where the page does
        time.sleep(0.5)
        return self._whole()

    def open(self, address: str) -> None:
        """Open an address, and wait until it is loaded."""
        self.ask("Page.navigate", url=address)
        self._until(lambda told: told.get("method") == "Page.loadEventFired")

    def _look(self, view: str, width: int, height: int) -> None:
        _, scheme, medium = VIEWS[view]
        size = {"width": width, "height": height, "deviceScaleFactor": SCALE, "mobile": view == "phone"}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.ask("Emulation.setEmulatedMedia", media=medium, features=features)

    def _whole(self) -> Image.Image:
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return Image.open(io.BytesIO(base64.b64decode(found["data"]))).convert("RGB")


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium with a folder of its own, and end it."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("Chromium is not installed: apt-get install chromium")
    (from_us, to_it), (from_it, to_us) = os.pipe(), os.pipe()

    def connect() -> None:  # Chromium reads from descriptor 3 and writes to 4
        high = [os.dup(each) for each in (from_us, to_us)]
        for place, each in enumerate(high, 3):
            os.dup2(each, place)

    with tempfile.TemporaryDirectory() as profile:
        started = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}"],
            preexec_fn=connect,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(from_us)
        os.close(to_us)
        try:
            with os.fdopen(to_it, "wb") as requests, os.fdopen(from_it, "rb") as answers:
                yield Browser(requests, answers)
        finally:
            started.terminate()
            started.wait(30)


def keep(picture: Image.Image, path: Path) -> None:
    """Write a picture with few colours; one that is too large is refused."""
    small = picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    path.parent.mkdir(parents=True, exist_ok=True)
    small.save(path, optimize=True)
    if path.stat().st_size > LARGEST:
        raise SystemExit(f"{path} has {path.stat().st_size:,} bytes: make the page shorter or take fewer colours")


def main() -> None:
    """Make the pages and their pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*PAGES, "dashboard"], help="the pictures of one page")
    parser.add_argument("--pages", type=Path, help="keep the pages in this folder")
    parser.add_argument("--out", type=Path, default=FIGURES, help="where the pictures go")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, browser() as shown:
        pages = given.pages or Path(temporary)
        pages.mkdir(parents=True, exist_ok=True)
        for name, (_, make) in PAGES.items():
            if given.only in (None, name):
                page = (pages / f"{name}.html").resolve()
                make(Path(temporary), page)
                for view in VIEWS:
                    path = given.out / f"{name}-{view}.png"
                    keep(shown.picture(page, view), path)
                    print(f"{path}: {path.stat().st_size // 1000} kB")
        if given.only in (None, "dashboard"):
            picture_dashboard(shown, given.out)


if __name__ == "__main__":
    main()
