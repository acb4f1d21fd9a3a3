"""A Chromium for the tests of the dashboard and for pictures of pages: find one, or set one up in .venv/browser.

    python lab/experiments/chromium.py            print where it is, or why there is none
    python lab/experiments/chromium.py --set-up   unpack the one inside an npm package if there is none

Looked for, in this order: $EXPUNGE_CHROMIUM, a Chromium of the system (on Debian `apt-get install chromium`), and what
was set up. Setting up needs npm and Node; the package is @sparticuz/chromium, which has what it needs beside libc.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv" / "browser"
PACKAGE = "@sparticuz/chromium@153.0.0"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: As root there is no sandbox, and in a container little shared memory.
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{folder}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>{folder}/cache</cachedir></fontconfig>
"""
# The package holds files packed with Brotli, which Node can unpack and Python cannot.
_UNPACK = """
const fs = require("fs"), zlib = require("zlib");
for (const [from, to] of JSON.parse(process.argv[1]))
  fs.writeFileSync(to, zlib.brotliDecompressSync(fs.readFileSync(from)));
"""


def find() -> Path | None:
    """Where a Chromium is; None if there is none."""
    named = os.environ.get("EXPUNGE_CHROMIUM")
    candidates = [named, *map(shutil.which, NAMES), str(FOLDER / "chromium")]
    return next((Path(each) for each in candidates if each and Path(each).is_file()), None)


def environment(program: Path) -> dict[str, str]:
    """The variables to run it with: the one that was set up needs to find its libraries and fonts."""
    if program.parent != FOLDER:
        return dict(os.environ)
    libraries = f"{FOLDER / 'lib'}:{FOLDER}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    return {**os.environ, "LD_LIBRARY_PATH": libraries, "FONTCONFIG_FILE": str(FOLDER / "fonts.conf")}


def set_up() -> Path:
    """Unpack the Chromium of the npm package, and see whether it runs."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise SystemExit("there is no Chromium, and no npm to get one: apt-get install chromium")
    FOLDER.mkdir(parents=True, exist_ok=True)
    options = ("--no-audit", "--no-fund", "--no-save", "--loglevel=error", "--prefix", str(FOLDER))
    _run("npm", "install", *options, PACKAGE)
    packed, program = FOLDER / "node_modules" / "@sparticuz" / "chromium" / "bin", FOLDER / "chromium"
    pairs = [(packed / "chromium.br", program)]
    pairs += [(each, FOLDER / each.name.removesuffix(".br")) for each in packed.glob("*.tar.br")]
    _run("node", "-e", _UNPACK, json.dumps([list(map(str, pair)) for pair in pairs]))
    for each in FOLDER.glob("*.tar"):
        shutil.unpack_archive(each, FOLDER, filter="data")
        each.unlink()
    shutil.rmtree(FOLDER / "node_modules")
    (FOLDER / "fonts.conf").write_text(_FONTS.format(folder=FOLDER))
    program.chmod(0o755)
    _run(str(program), "--version")
    return program


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment(Path(command[0])), timeout=600
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SystemExit(f"{command[0]}: {error}") from None
    if done.returncode:
        shutil.rmtree(FOLDER)
        raise SystemExit(f"{command[0]} failed: {' '.join(done.stderr.split()):.300}")


def main() -> None:
    """Print where it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set-up", action="store_true", help="get one if there is none")
    given = parser.parse_args()
    found = find()
    if found is None and given.set_up:
        found = set_up()
    if found is None:
        sys.exit("there is no Chromium: --set-up gets one, or apt-get install chromium")
    print(found)


if __name__ == "__main__":
    main()
