"""The deployments that are killed: small, cheap to train, and between them every part of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from people import NUM_PEOPLE, Person, table_of
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge import Guarantee
from expunge.serving.promises import Consensus, Noise, Router, Student
from expunge.training.learners import LookupTableLearner, NearestTableLearner, SlicedScikitLearner

_MAJORITY = {"promise": "unguarded"}
_WEAK = Guarantee(30.0, 0.4, 0.4)  # within reach of twenty shards


@dataclass(frozen=True)
class Scenario:
    """One way of using a folder. `dead_allowed` makes deletions write all records anew after so many."""

    learner: Callable[[], Any]
    table: str = "array"
    ids: str = "numbers"
    apply: str = "now"
    dead_allowed: int | None = None
    counts_every_row: bool = True  # whether every row that `predict` answers is paid for, and nothing else
    is_busy: bool = False  # whether rounds and generations change by themselves
    options: dict[str, Any] = field(default_factory=dict)

    def create(self, folder: Path) -> Any:
        first = [Person(number) for number in range(NUM_PEOPLE)]
        return expunge.create(
            folder,
            self.learner(),
            table_of(first, self.table),
            [person.label for person in first],
            ids=[person.name(self.ids) for person in first],
            subjects=[person.subject for person in first],
            classes=[0, 1],
            apply=self.apply,
            **{"n_shards": 6, "inclusion_probability": 0.3, **self.options},
        )


def _pool() -> np.ndarray:
    return np.array([Person(number).features for number in range(10_000, 10_030)])


SCENARIOS: dict[str, Scenario] = {
    # Every table model holds its shard's rows as they are, so that a model left over is found by the scan.
    "plain": Scenario(LookupTableLearner, options=_MAJORITY),
    "exact": Scenario(LookupTableLearner, counts_every_row=False, options={"inclusion_probability": None}),
    "encrypted": Scenario(LookupTableLearner, ids="texts", dead_allowed=3, options={**_MAJORITY, "encrypt": True}),
    "noisy": Scenario(
        lambda: NearestTableLearner(50.0),
        ids="texts",
        apply="at 2",
        options={"promise": Noise("laplace", max_predictions=14)},
    ),
    "refusing": Scenario(
        LogisticRegression,
        apply="manual",
        options={"promise": Noise("laplace", max_predictions=10, on_exhausted="refuse")},
    ),
    "gate": Scenario(
        lambda: NearestTableLearner(50.0),
        apply="at 2",
        options={"n_shards": 20, "promise": Consensus(target=_WEAK, max_predictions=12, max_generations=40)},
    ),
    "slices": Scenario(lambda: SlicedScikitLearner(GaussianNB(), 3), apply="at 3", ids="texts", options=_MAJORITY),
    "objects": Scenario(LookupTableLearner, table="objects", ids="texts", dead_allowed=3, options=_MAJORITY),
    "sparse": Scenario(
        LookupTableLearner,
        table="sparse",
        ids="mixed",
        apply="at 2",
        dead_allowed=6,
        options=_MAJORITY,
    ),
    "background": Scenario(
        lambda: NearestTableLearner(50.0),
        apply="every 0.02s",
        is_busy=True,
        options={"promise": Noise("laplace", max_predictions=5, on_exhausted="retrain_now")},
    ),
    "student": Scenario(
        GaussianNB,
        counts_every_row=False,
        options={
            "n_shards": 20,
            "promise": Student(
                _pool(),
                target=_WEAK,
                max_predictions=150,
                max_generations=40,
                selection_share=0.9,
                num_throw_away=10,
            ),
        },
    ),
    "router": Scenario(
        GaussianNB,
        counts_every_row=False,
        options={
            "n_shards": 20,
            "promise": Router(target=_WEAK, max_predictions=12, max_generations=40, num_queries=60, num_throw_away=10),
        },
    ),
}
