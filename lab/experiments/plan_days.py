"""What `expunge plan --data` says of costs and accuracy, against what then happens on 200 days.

Customers with gaps, a date and free text (`expunge_lab.datasets.churn`). The plan measures, and a folder is created.
Each day ten of its customers are deleted by one request, and a hundred new ones are asked about. Times are processor
time.

    python lab/experiments/plan_days.py            six minutes of processor time; keeps lab/results/plan-days.json
    python lab/experiments/plan_days.py --quick    seconds; the times mean nothing

Expected: the work of a day within a factor of 1.5 of what was said, and the accuracy within the interval that was said.
The seeds are fixed, so the accuracies are the same in every run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import expunge
from expunge.cli.folders import read_columns, schema_of
from expunge_lab.datasets.churn import make_churn
from results import add_options, chosen_folder, save

COLUMNS = ("--label", "churned", "--id", "customer_id", "--subject", "household")


@dataclass(frozen=True)
class Size:
    """How much happens."""

    records: int
    days: int
    deletions: int  # a day
    questions: int  # a day
    minutes: float  # of measuring


FULL, QUICK = Size(20_000, 200, 10, 100, 0.5), Size(600, 5, 2, 200, 0.05)
CASES = {"logistic, one model": ("logistic", 1), "logistic": ("logistic", 10), "boosting": ("boosting", 10)}
# Boosting learns from numbers and categories alone: words make 256 columns more, and 200 days take half an hour.
LEFT_OUT = {"boosting": ("--ignore", "note", "--ignore", "joined")}


def main() -> None:
    """Run all cases, or some, and keep what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=CASES, action="append", help="these cases; all if not given")
    add_options(parser)
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    found = {}
    for case in options.only or CASES:
        found[case] = compare(*CASES[case], size)
        print(case, found[case], flush=True)
    command = " ".join(["plan_days.py", *(["--quick"] if options.quick else [])])
    save(chosen_folder(options), "plan-days", command, {"size": vars_of(size), "cases": found})


def vars_of(size: Size) -> dict[str, Any]:
    """The size as plain data."""
    return {name: getattr(size, name) for name in Size.__dataclass_fields__}


def compare(learner: str, num_shards: int, size: Size) -> dict[str, Any]:
    """What was said of one learner and number of shards, and what happened."""
    with tempfile.TemporaryDirectory(prefix="expunge-plan-") as place:
        here = Path(place)
        table, fresh = make_churn(size.records), make_churn(size.days * size.questions, seed=1)
        table.to_csv(here / "train.csv", index=False)
        fresh.drop(columns="churned").to_csv(here / "fresh.csv", index=False)
        words = ("--data", here / "train.csv", *COLUMNS, *LEFT_OUT.get(learner, ()), "--learner", learner)
        words = (*words, "--shards", num_shards, "--json")
        traffic = ("--deletions-per-day", size.deletions, "--batches-per-day", 1)
        plan = run("plan", *words, *traffic, "--minutes", size.minutes)
        run("create", here / "folder", *words, "--minutes", 0, "--seed", 0)
        work, accuracy = live(here, table["customer_id"].tolist(), fresh["churned"].to_numpy(), size)
    place_of = [each["num_shards"] for each in plan["measured"]["candidates"]].index(num_shards)
    said, scores = plan["days"][place_of], plan["measured"]["candidates"][place_of]["scores"]["main"]
    return {
        "shards": num_shards,
        "seconds a day, said": round(said, 4),
        "seconds a day": round(work, 4),
        "factor": round(max(said / work, work / said), 3),
        "accuracy, said": [round(scores[name], 4) for name in ("value", "low", "high")],
        "accuracy": round(accuracy, 4),
        "is within": bool(scores["low"] <= accuracy <= scores["high"]),
    }


def run(*words: Any) -> dict[str, Any]:
    """Run the program, and read what it prints."""
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "expunge", *map(str, words)]
    done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, **one_thread})
    return json.loads(done.stdout)


def live(here: Path, ids: list[str], truth: np.ndarray, size: Size) -> tuple[float, float]:
    """Days in a folder: the seconds of processor time of a day's deletions, and the share of right answers."""
    gone = np.random.default_rng(2).permutation(ids)[: size.days * size.deletions].tolist()
    spent, answers = 0.0, []
    with expunge.open(here / "folder") as deployment:
        schema = schema_of(deployment, here / "folder")
        questions = schema.unlabelled(read_columns(here / "fresh.csv", schema))
        for day in range(size.days):
            started = time.process_time()
            deployment.delete(gone[day * size.deletions :][: size.deletions])
            spent += time.process_time() - started
            answers += deployment.predict(questions[day * size.questions :][: size.questions]).tolist()
    return spent / size.days, float(np.mean(np.array(answers) == truth))


if __name__ == "__main__":
    main()
