"""Write the certificates of this folder anew, with a new key: `python tests/evidence/golden/sign.py`.

Run it after a change of the format. Once the format is released, a change needs a new format number and new files.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace
from pathlib import Path

from expunge.evidence import Certificate, ExactFacts, GuaranteeFacts

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
    late = office.new_log(lambda events: [(*each[:2], {**each[2], "clamped": True}) for each in events])
    made: dict[str, Certificate] = {
        "deployment": office.issue_for_deployment(),
        "clamped": office.issue(log=late.about(office.request.request_id), clamped=True),
        "exact": office.issue(deployment=partition, guarantee=nothing),
        "not-claimed": office.issue(guarantee=nothing),
        "killed": office.issue(publication=replace(office.publication, predictions_released=500)),
        "request": office.issue(log=office.log.about(office.request.request_id, earlier=[office.log.checkpoint(5)])),
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
