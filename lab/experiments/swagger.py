"""Refresh the files of Swagger UI that the service serves at /docs, from npm's registry.

    python lab/experiments/swagger.py            the newest release of swagger-ui-dist 5
    python lab/experiments/swagger.py 5.35.0     this one

It needs npm. The scripts and the style sheet are kept compressed, with the hashes of what they hold, their version and
their licence in `manifest.json`. `make swagger` runs it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

TARGET = Path(__file__).parents[2] / "src" / "expunge" / "service" / "swagger"
FILES = ("swagger-ui-bundle.js", "swagger-ui.css")


def main(version: str) -> None:
    """Fetch a release and write its files."""
    with tempfile.TemporaryDirectory() as name:
        asked = ["npm", "pack", f"swagger-ui-dist@{version}", "--silent"]
        packed = Path(name) / subprocess.run(asked, cwd=name, check=True, capture_output=True, text=True).stdout.strip()
        with tarfile.open(packed) as archive:
            archive.extractall(name, filter="data")
        package = Path(name) / "package"
        facts = json.loads((package / "package.json").read_text(encoding="utf-8"))
        TARGET.mkdir(exist_ok=True)
        hashes = {}
        for each in FILES:
            content = (package / each).read_bytes()
            hashes[each] = hashlib.sha256(content).hexdigest()
            (TARGET / f"{each}.gz").write_bytes(gzip.compress(content, 9, mtime=0))
        for each in ("LICENSE", "NOTICE"):
            (TARGET / each).write_bytes((package / each).read_bytes())
        told = {"package": facts["name"], "version": facts["version"], "license": facts["license"], "sha256": hashes}
        (TARGET / "manifest.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
        print(f"{facts['name']} {facts['version']}: {sum(f.stat().st_size for f in TARGET.iterdir()):,} bytes")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "5")
