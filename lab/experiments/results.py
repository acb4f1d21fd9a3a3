"""Where results go, and how they are written: one compact JSON file for each dataset of each experiment."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from expunge_lab.bench import Environment

RESULTS = Path(__file__).parents[1] / "results"


def accuracy(answers: ArrayLike, truth: ArrayLike) -> float:
    """The share of right answers, to four digits."""
    return round(float(np.mean(np.asarray(answers) == np.asarray(truth))), 4)


def save(folder: Path | None, name: str, command: str, result: dict[str, Any]) -> None:
    """Write a result with the command that made it and what it was made with; without a folder only say it."""
    content = {"command": f"python lab/experiments/{command}", "environment": asdict(Environment.current()), **result}
    text = json.dumps(content, indent=1) + "\n"
    if folder is None:
        print(text, flush=True)
        return
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(text)
    print(f"wrote {path.name}", flush=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    """`--quick`, and `--out` for the folder of results."""
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is kept unless --out is given")
    parser.add_argument("--out", type=Path, help="the folder of results, of its own for quick ones")


def chosen_folder(options: argparse.Namespace) -> Path | None:
    """Where results go."""
    return options.out or (None if options.quick else RESULTS)
