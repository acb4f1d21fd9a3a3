"""`expunge plan --data`: how long it takes, and what it says of deletions against what then happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expunge.core.prf import RecipeKey
from expunge.core.records import Delete, Records
from expunge.training.ensemble import learn, update
from expunge.training.learners.named import column_kinds, named_learner
from expunge.training.recipe import Recipe
from expunge_lab.bench.measurement import Line, Progress, Target
from expunge_lab.datasets.churn import make_churn

UNUSED = ("note", "joined")
ROLES = ("customer_id", "household", "churned")


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure."""

    num_records: int
    days: dict[int, int]  # how many, by the number of shards
    minutes: float


FULL, QUICK = Size(50_000, {1: 20, 10: 200}, 1.0), Size(300, {1: 3, 2: 3}, 0.1)
LEARNERS = ("logistic", "boosting")
IN_TIME = Target.ours_at_most(120)
NEAR = Target.ratio_at_most(1.5)


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite."""
    size = QUICK if quick else FULL
    lines: list[Line] = []
    with progress("plan", len(LEARNERS) * (1 + len(size.days))) as advance:
        for name in LEARNERS:
            found, seconds = plan(size, name)
            lines.append(Line.alone(f"plan --data, n={size.num_records:,}, {name}", [seconds], target=IN_TIME))
            advance(1)
            said = {
                each["num_shards"]: each["deletion"] for each in found["measured"]["candidates"] if not each["learner"]
            }
            for num_shards in size.days:
                if num_shards in said:
                    lines.append(_compare(size, name, num_shards, said[num_shards]))
                advance(1)
    return lines


def plan(size: Size, name: str) -> tuple[dict[str, Any], float]:
    """What the command says, and the seconds that it takes, the start of Python included."""
    with tempfile.TemporaryDirectory(prefix="expunge-bench-") as folder:
        path = Path(folder) / "train.csv"
        make_churn(size.num_records).to_csv(path, index=False)
        roles = [
            word
            for role, column in zip(("id", "subject", "label"), ROLES, strict=True)
            for word in (f"--{role}", column)
        ]
        ignored = [word for column in UNUSED for word in ("--ignore", column)]
        options = ["--learner", name, "--minutes", str(size.minutes), "--json"]
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "expunge", "plan", "--data", str(path), *roles, *ignored, *options],
            capture_output=True,
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        return json.loads(done.stdout), time.perf_counter() - started


def _compare(size: Size, name: str, num_shards: int, said: float) -> Line:
    """The processor time of a deletion: said before, and as it was over days with one deletion each."""
    count = size.days[num_shards]
    happened = days(size, name, num_shards) / count
    what = f"a deletion, {name}, n={size.num_records:,}, k={num_shards}: said, and on {count} days; the larger"
    return Line.cost(what, [max(said, happened)], "the smaller", [min(said, happened)], target=NEAR)


def days(size: Size, name: str, num_shards: int) -> float:
    """The seconds of processor time of updates on some days, with a deletion each."""
    table = make_churn(size.num_records)
    X = table.drop(columns=[*ROLES, *UNUSED]).astype({"newsletter": float})
    ids, people = table["customer_id"].tolist(), table["household"].tolist()
    records = Records.build(X, table["churned"], ids=ids, subjects=people, allow_missing=True)
    recipe = Recipe(named_learner(name, columns=column_kinds(X)), num_shards, key=RecipeKey.from_seed(1))
    state = learn(records, recipe)
    started = time.process_time()
    count = size.days[num_shards]
    for customer in ids[:: len(ids) // count][:count]:
        state, _ = update(state, [Delete(customer)])
    return time.process_time() - started
