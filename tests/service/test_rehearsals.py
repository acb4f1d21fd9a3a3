"""A rehearsal that went through a process as JSON says what the rehearsal itself says."""

from __future__ import annotations

import json
from contextlib import contextmanager

import numpy as np
import pytest

from expunge.core.records import Records
from expunge.service import rehearsals
from expunge.training.learners.named import named_learner

TRAFFIC = {"predictions_per_day": 50.0, "deletions_per_day": 10.0, "batches_per_day": 5.0}
WIDE = {"alpha": 20.0, "beta": 0.4, "gamma": 0.4, "max_predictions": 1000, "max_generations": 2}


@pytest.fixture
def records():
    X = np.random.default_rng(0).normal(size=(400, 3))
    return Records.build(X, X[:, 0] + 0.3 * X[:, 1] > 0)


@pytest.fixture
def kept(monkeypatch):
    """The rehearsals as they were made."""
    made, original = [], rehearsals.rehearse

    def rehearse(*arguments, **options):
        made.append(original(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(rehearsals, "rehearse", rehearse)
    return made


@contextmanager
def silent(what, total):
    assert what
    assert total >= 1
    yield lambda steps: None


def run(records, **options):
    options = {"seconds": 20.0, "shards": None, "copies": None, **WIDE, **options}
    result = rehearsals.run(records, named_learner("ridge"), progress=silent, **options)
    return rehearsals.tell(json.loads(json.dumps(result)), options, TRAFFIC)


def test_nothing_is_lost_on_the_way(records, kept):
    told = run(records, shards=40, copies=4.0)
    (found,) = kept
    assert found.design is not None
    assert told["day"] == found.day(**TRAFFIC)
    assert told["predictions"] == found.predictions
    assert (told["sure"], told["needed"]) == (found.sure, found.design.sure_release_share)
    assert told["agreement"] == pytest.approx(np.mean(found.vote_shares))
    assert (told["shards"], told["models"], told["tested"]) == (40, 40, len(found.vote_shares))
    assert told["copies"] == pytest.approx(4)
    assert told["accuracy"][0] == found.scores.main.value


def test_the_planner_says_how_many_shards_unless_they_are_given(records, kept):
    told = run(records)
    assert told["promised"]
    assert told["needed"] == pytest.approx(0.9, abs=0.02)
    assert told["copies"] / told["shards"] == pytest.approx(0.5)  # 200 of 400 records: fewer teach a shard too little
    assert run(records, shards=40)["copies"] == pytest.approx(1)
