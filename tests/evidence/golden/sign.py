"""Write the certificates of this folder anew, with a new key: `python tests/evidence/golden/sign.py`.

Run it after a change of the format. Once the format is released, a change needs a new format number and new files.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace
from pathlib import Path

from expunge.evidence import Certificate, ExactFacts, Excerpt, GuaranteeFacts

FOLDER = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("office", FOLDER.parent / "conftest.py")
assert _spec is not None
assert _spec.loader is not None
_office = importlib.util.module_from_spec(_spec)
__import__("sys").modules["office"] = _office
_spec.loader.exec_module(_office)


def main() -> None:
    """Sign one certificate of each kind."""
    office = _office.make_office()
    nothing = GuaranteeFacts(math.inf, 0.0, 0.0, note="the shards are a partition")
    partition = replace(office.deployment, promise="exact", sampler_is_independent=False)
    mixed = ExactFacts(
        learner="LogisticRegression",
        num_shards=1000,
        numerics="lenient",
        environments=(("numpy 2.1 on x86_64", 940), ("numpy 2.2 on x86_64", 60)),
    )
    stretch, lines = office.excerpt, office.lines
    late = Excerpt.of(
        lines[2].head,
        [line.entry if line.entry in stretch.entries else line.entry.digest for line in lines[3:]],
        earlier=[lines[1].entry],
    )
    made: dict[str, Certificate] = {
        "deployment": office.issue_for_deployment(),
        "earlier-entries": office.issue(ledger=late),
        "exact": office.issue(deployment=partition, guarantee=nothing),
        "not-claimed": office.issue(guarantee=nothing),
        "request": office.issue(),
        "round-numbers": office.issue(guarantee=replace(office.guarantee, alpha=8.0, beta=0.07, gamma=0.07)),
        "several-environments": office.issue(exact=mixed),
    }
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for name, certificate in made.items():
        (FOLDER / f"format-{certificate.format}-{name}.json").write_bytes(certificate.to_json())
    (FOLDER / "operator.pem").unlink(missing_ok=True)
    office.key.public_key.save(FOLDER / "operator.pem")


if __name__ == "__main__":
    main()
