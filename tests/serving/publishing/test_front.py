"""Rounds of every front can be dumped, loaded and moved to other slots, and nothing is paid for twice."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from expunge import Guarantee, UnlearningClassifier
from expunge.core.errors import RecordError
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.serving.promises import Consensus, Exact, Router, Student
from expunge.serving.publishing import RoundContext
from expunge.training.fallback import NearestNeighbours
from expunge.training.learners import ScikitLearner

RNG = np.random.default_rng(0)
Y = np.arange(150) % 2
X = RNG.normal(size=(150, 2)) + 3 * Y[:, np.newaxis]
POOL = RNG.normal(size=(40, 2)) + 3 * (np.arange(40) % 2)[:, np.newaxis]
QUERIES = RNG.uniform(-3, 6, (50, 2))
LIMITS = {"target": Guarantee(8.0, 0.05, 0.05), "max_generations": 3, "max_predictions": 1000}
PROMISES = {
    "exact": Exact(),
    "direct": Consensus(**LIMITS),
    "router": Router(fallback=NearestNeighbours(num_neighbours=3), **LIMITS),
    "student": Student(POOL, student=LogisticRegression(), **LIMITS),
}


@pytest.fixture(scope="module", params=PROMISES)
def served(request):
    """A front and the round that it serves, after a deletion."""
    promise = PROMISES[request.param]
    options = {} if request.param == "exact" else {"n_shards": 100, "inclusion_probability": 0.3}
    model = UnlearningClassifier(LogisticRegression(), promise=promise, random_state=0, **options).fit(X, Y)
    model.delete([7])
    return promise.make_front(ScikitLearner(LogisticRegression())), model.deployment_.inside


def opening_of(inside):
    """What the round is loaded with: a copy of the publisher counts what is paid for."""
    publisher = pickle.loads(pickle.dumps(inside.publisher))
    return RoundContext(inside.state, publisher, Randomness.from_seed(1), executor=None)  # nothing is trained


def test_a_loaded_round_answers_as_before_and_is_not_paid_for_again(served):
    front, inside = served
    kept = front.dump_round(inside.serving, inside.state)
    opening = opening_of(inside)
    before = opening.publisher.status
    found = front.load_round(opening, kept)
    assert type(found) is type(inside.serving)
    assert opening.publisher.status == before
    assert found.is_repeatable == inside.serving.is_repeatable
    np.testing.assert_array_equal(found.answer(QUERIES), inside.serving.answer(QUERIES))
    assert front.dump_round(found, inside.state).keys() == kept.keys()


def test_what_is_dumped_holds_no_record(served):
    front, inside = served
    kept = pickle.dumps(front.dump_round(inside.serving, inside.state))
    for row in X:
        assert row.tobytes() not in kept


def test_a_moved_round_answers_as_before(served):
    _, inside = served
    state = inside.state.compacted()
    assert state.records.num_slots == inside.state.records.num_slots - 1
    found = inside.serving.moved(state)
    np.testing.assert_array_equal(found.answer(QUERIES), inside.serving.answer(QUERIES))
    if hasattr(found, "opening"):  # a student does not look at the records
        assert found.opening.state is state


def block_of(features, record="new"):
    return Records.build(features, np.zeros(len(features)), ids=[record], classes=[0, 1]).blocks[0]


def test_only_records_that_no_round_could_be_opened_with_are_refused(served):
    front, inside = served
    classes = inside.state.records.classes
    assert front.refuse(block_of(np.array([[0.25, 0.5]])), classes) is None
    refused = {"StudentFront": POOL[3:4], "none": np.array([[1e200, 0.0]])}
    wrong = refused.get(type(front).__name__)
    if wrong is not None:
        with pytest.raises(RecordError, match="record 'new'"):
            front.refuse(block_of(wrong), classes)
    for other in refused.values():
        if other is not wrong:
            assert front.refuse(block_of(other), classes) is None
