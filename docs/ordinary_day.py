"""One day of an ordinary user: a table with categories and gaps, ten rounds of predictions, and a deletion after each.

    python docs/ordinary_day.py

The user has 50,000 customers, 10% of whom leave. Columns are numbers and categories, and values are missing. Twenty
models are trained, one on each shard. Then come 10 rounds: 300 predictions, and one customer who asks to be deleted. At
the end everything is checked, and the bill is compared with fitting one pipeline again for every deletion.

What to expect, in about half a minute on one core:

- the exact promise is in force in every round, and no prediction uses it up;
- every deletion retrains 1 of 20 models;
- a deletion takes about 1/7 of the processor time of one refit (the learner is gradient boosting, whose fit dominates;
  `--learner logistic` shows the other case: its fit is so fast that plain retraining is the better choice);
- all 20 models, trained again from the records that are left, are the same as those in service, bit for bit.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import expunge
from expunge.audit import recompute
from expunge.evidence import verify

ROUNDS, PREDICTIONS = 10, 300
CLASSIFIERS = {
    "boosting": HistGradientBoostingClassifier(early_stopping=False),
    "logistic": LogisticRegression(max_iter=1000),
}


def make_customers(count: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """A table as companies have them, and who left (10%)."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 80, count).astype(float),
            "spend": rng.gamma(2.0, 50.0, count).round(2),
            "visits": rng.poisson(4, count).astype(float),
            "region": rng.choice(["north", "south", "east", "west", "centre"], count),
            "plan": rng.choice(["basic", "plus", "pro"], count, p=[0.6, 0.3, 0.1]),
            "device": rng.choice([f"model-{number}" for number in range(40)], count),
        }
    )
    score = (
        -0.03 * (table["age"] - 45)
        + 0.01 * (table["spend"] - 100) * (table["plan"] == "basic")
        + 0.8 * (table["region"] == "north")
        - 0.25 * table["visits"]
        + rng.logistic(size=count)
    )
    for column, share in (("age", 0.05), ("spend", 0.10), ("region", 0.03)):
        table.loc[rng.random(count) < share, column] = np.nan
    return table, (score > score.quantile(0.9)).to_numpy().astype(int)


def make_pipeline_of(learner: str) -> Pipeline:
    """An ordinary pipeline: filled gaps, scaled numbers, one-hot categories, and a classifier."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    categories = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="missing"),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    columns = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (categories, make_column_selector(dtype_exclude="number")),
    )
    return make_pipeline(columns, CLASSIFIERS[learner])


@dataclass
class Day:
    """What happened."""

    promises: list[str] = field(default_factory=list)  # in force in each round
    models_retrained: list[int] = field(default_factory=list)  # by each deletion
    deletion_seconds: list[float] = field(default_factory=list)  # of processor time, everything on the disk included
    refit_seconds: float = 0.0  # of processor time: one pipeline, on all records
    auc: float = 0.0  # of all answers of the day
    auc_of_one: float = 0.0  # of one pipeline on all records, on the same questions
    checked: int = 0
    agrees: bool = False
    certificate_holds: bool = False


def live_through(
    folder: Path, *, num_records: int = 50_000, num_shards: int = 20, learner: str = "boosting", promise: Any = "exact"
) -> Day:
    """Create, then ten rounds of predictions and a deletion, then the checks."""
    day, pipeline = Day(), make_pipeline_of(learner)
    table, left = make_customers(num_records + ROUNDS * PREDICTIONS)
    X, y = table[:num_records], left[:num_records]
    questions, truth = table[num_records:].reset_index(drop=True), left[num_records:]
    answers = []

    ids = [f"customer-{number}" for number in range(num_records)]
    options = {"n_shards": num_shards, "promise": promise, "allow_missing": True}
    with expunge.create(folder, pipeline, X, y, ids=ids, **options) as deployment:
        leaving = np.random.default_rng(1).choice(ids, ROUNDS, replace=False).tolist()
        for number, customer in enumerate(leaving):
            asked = questions[number * PREDICTIONS : (number + 1) * PREDICTIONS]
            if promise == "exact":
                answers.append(deployment.predict_proba(asked)[:, 1])
            else:
                deployment.predict(asked)
            day.promises.append(", ".join(each.name for each in deployment.promise if each.is_claimed))

            trained, started = deployment.inside.models_trained, time.process_time()
            receipt = deployment.delete([customer])
            day.deletion_seconds.append(time.process_time() - started)
            day.models_retrained.append(deployment.inside.models_trained - trained)
            assert receipt.state == "applied"

        certificate = deployment.certificate(deployment.requests()[-1].request)
        day.certificate_holds = verify(certificate.to_json()).holds

    started = time.process_time()
    one = clone(pipeline).fit(X, y)
    day.refit_seconds = time.process_time() - started
    if answers:
        day.auc = float(roc_auc_score(truth, np.concatenate(answers)))
        day.auc_of_one = float(roc_auc_score(truth, one.predict_proba(questions)[:, 1]))

    found = recompute(folder, shards="all")
    day.checked, day.agrees = len(found.checked), found.agrees
    return day


def tell(day: Day, num_shards: int) -> None:
    """Print the day."""
    deletion, refit = float(np.median(day.deletion_seconds)), day.refit_seconds
    print(f"promise in force in each round: {', '.join(sorted(set(day.promises)))}")
    print(f"models retrained by each deletion: {day.models_retrained} of {num_shards}")
    print(f"processor time: a deletion {deletion:.2f} s, one refit {refit:.2f} s; ratio {deletion / refit:.2f}")
    print(f"quality of the day's answers (AUC): {day.auc:.3f}; of one model on everything: {day.auc_of_one:.3f}")
    print(f"trained again and compared: {day.checked} models; {'all the same' if day.agrees else 'SOME DIFFER'}")
    print(f"the last certificate: {'holds' if day.certificate_holds else 'DOES NOT HOLD'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--shards", type=int, default=20)
    parser.add_argument("--learner", choices=CLASSIFIERS, default="boosting")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary) / "customers"
        tell(
            live_through(place, num_records=chosen.records, num_shards=chosen.shards, learner=chosen.learner),
            chosen.shards,
        )
