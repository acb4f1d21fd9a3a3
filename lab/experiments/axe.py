"""axe-core, the checker of accessibility that the tests of the dashboard run in the page: fetched from npm and kept.

    python lab/experiments/axe.py 4.14.1    (or `make axe`) fetch this version, and replace what is kept

What is kept in tests/service/axe: the script, packed; its licences; and a note with version and checksums. The
product neither contains nor needs it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "tests" / "service" / "axe"
NAME = "axe-core"
LICENCES = ("LICENSE", "LICENSE-3RD-PARTY.txt")


def main() -> None:
    """Fetch the version that is named."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    asked = f"{NAME}@{sys.argv[1]}"
    told = json.loads(npm("view", asked, "version", "license", "dist.integrity", "--json"))
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder, npm("pack", asked, "--pack-destination", folder, "--silent").split()[-1])
        kind, _, expected = told["dist.integrity"].partition("-")
        found = base64.b64encode(hashlib.new(kind, packed.read_bytes()).digest()).decode()
        if found != expected:
            sys.exit(f"{asked}: what came is not what was announced")
        with tarfile.open(packed) as archive:
            files = {name: read(archive, name) for name in ("axe.min.js", *LICENCES)}
    script = files.pop("axe.min.js")
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / "axe.min.js.gz").write_bytes(gzip.compress(script, mtime=0))
    for name, content in files.items():
        (KEPT / name).write_bytes(content)
    note = {
        "name": NAME,
        "version": told["version"],
        "licence": told["license"],
        "integrity": told["dist.integrity"],
        "sha256": {"axe.min.js": hashlib.sha256(script).hexdigest()},
    }
    (KEPT / "axe.json").write_text(json.dumps(note, indent=1) + "\n")
    print(f"{KEPT}: {asked}")


def npm(*arguments: str) -> str:
    """Run npm, and return what it prints."""
    return subprocess.run(["npm", *arguments], capture_output=True, text=True, check=True).stdout


def read(archive: tarfile.TarFile, name: str) -> bytes:
    """A file of the package."""
    stream = archive.extractfile(f"package/{name}")
    assert stream is not None
    return stream.read()


if __name__ == "__main__":
    main()
