"""Where results go, and how they are written: one compact JSON file for each dataset of each experiment."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from expunge.bench import Environment

RESULTS = Path(__file__).parent / "results"


def accuracy(answers: ArrayLike, truth: ArrayLike) -> float:
    """The share of right answers, to four digits."""
    return round(float(np.mean(np.asarray(answers) == np.asarray(truth))), 4)


def save(path: Path, command: str, result: dict[str, Any]) -> None:
    """Write a result with the command that made it and what it was made with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"command": f"python experiments/{command}", "environment": asdict(Environment.current()), **result}
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"wrote {path.name}", flush=True)
