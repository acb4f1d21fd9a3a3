"""Training the ensemble, against scikit-learn's BaggingClassifier with the same base and the same share of the data.

BaggingClassifier trains a base that takes sample weights on all rows, with weight zero for those not drawn; a base that
takes none (any Pipeline) it trains on the drawn rows alone, as expunge always does. The second is the harder rival.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expunge.serving.estimator import UnlearningClassifier
from expunge_lab.bench.measurement import Advance, Line, Progress, Target, Task, race
from expunge_lab.bench.workload import make_records


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure; bagging with weights gets fewer records, for it takes k times as long."""

    num_records: int
    num_weighted: int
    num_shards: int
    repeats: int


FULL = Size(num_records=200_000, num_weighted=20_000, num_shards=100, repeats=5)
QUICK = Size(num_records=2_000, num_weighted=1_000, num_shards=5, repeats=2)

_TARGET = Target.ratio_at_most(1.1)


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite."""
    size = QUICK if quick else FULL
    scaled = make_pipeline(StandardScaler(), LogisticRegression())
    with progress("fit", 4 * size.repeats) as advance:
        return [
            measure(
                "LogisticRegression",
                LogisticRegression(),
                num_records=size.num_weighted,
                num_shards=size.num_shards,
                repeats=size.repeats,
                advance=advance,
                target=_TARGET,
            ),
            measure(
                "StandardScaler + LogisticRegression",
                scaled,
                num_records=size.num_records,
                num_shards=size.num_shards,
                repeats=size.repeats,
                advance=advance,
                target=_TARGET,
            ),
        ]


def measure(
    name: str,
    base: Any,
    *,
    num_records: int,
    num_shards: int,
    repeats: int,
    advance: Advance,
    target: Target | None = None,
) -> Line:
    """Both fit the same data, each model on a 1/k share of it, one after another."""
    X, y = make_records(num_records)
    ours = UnlearningClassifier(base, n_shards=num_shards)
    bagging = BaggingClassifier(base, n_estimators=num_shards, max_samples=1 / num_shards)
    fitting, rival = race(
        [Task(lambda: ours.fit(X, y), repeatable=False), Task(lambda: bagging.fit(X, y), repeatable=False)],
        repeats=repeats,
        advance=advance,
    )
    what = f"fit {name}, n={num_records:,}, k={num_shards:,}"
    return Line.cost(what, fitting, "BaggingClassifier", rival, target=target)
