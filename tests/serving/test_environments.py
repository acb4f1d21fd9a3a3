"""A deployment in memory carries its environment along: a copy that is loaded elsewhere trains everything again."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from expunge import UnlearningClassifier
from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee
from expunge.core.prf import RecipeKey
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.serving.deployment import Deployment
from expunge.serving.promises import make_statements
from expunge.serving.publishing import ExactPublisher
from expunge.training import environment
from expunge.training.environment import Environment, Origins
from expunge.training.learners import LookupTableLearner
from expunge.training.sampling import PartitionSampler

X = np.arange(80.0).reshape(40, 2)
Y = np.arange(40) % 2


def deployment(**options):
    return Deployment(
        Records.build(X, Y),
        LookupTableLearner(),
        num_shards=4,
        sampler=PartitionSampler(),
        publisher=ExactPublisher(),
        rng=Randomness.from_seed(0),
        key=RecipeKey.from_seed(1),
        **options,
    )


@pytest.fixture
def elsewhere(monkeypatch):
    """From now on this process is another environment."""

    def move():
        facts = {**environment._common_facts(), "numpy": "99"}
        monkeypatch.setattr(environment, "_common_facts", lambda: facts)

    return move


@pytest.mark.parametrize(("numerics", "touched"), [("strict", 4), ("lenient", 1)])
def test_a_loaded_copy_trains_again_what_comes_from_elsewhere(elsewhere, numerics, touched):
    data = pickle.dumps(deployment(numerics=numerics))
    elsewhere()
    copy = pickle.loads(data)
    assert [count for count, _ in copy.origins.changes] == [4]
    key = copy.inside.state.key
    copy.delete([7])
    assert len(copy.inside.last_report.touched) == touched
    assert (copy.inside.state.key, copy.status.generation) == (key, 1)
    assert copy.origins.is_mixed == (numerics == "lenient")
    assert ("up to rounding" in copy.promise[0].statement) == (numerics == "lenient")
    copy.delete([8])
    assert len(copy.inside.last_report.touched) == 1


def test_an_estimator_says_where_its_models_come_from(elsewhere):
    model = UnlearningClassifier(n_shards=4, random_state=0).fit(X, Y)
    data = pickle.dumps(model)
    elsewhere()
    copy = pickle.loads(data)
    assert f"numpy {np.__version__}" in copy.promise_[0].compares_with
    copy.delete([7])
    assert "numpy 99" in copy.promise_[0].compares_with


def test_numerics_are_checked():
    with pytest.raises(ParameterError, match="numerics must be"):
        deployment(numerics="loose")


def test_statements_name_the_environments():
    one, other = (Environment.of({"python": "3.11", "numpy": version}) for version in ("2.1", "2.2"))
    guarantee = Guarantee(5, 1e-3, 1e-3, theorem="T4")
    exact, _ = make_statements(guarantee)
    named, _ = make_statements(guarantee, Origins.of({one: 3}, here=one, numerics="strict"))
    assert named.statement == exact.statement
    assert named.compares_with == f"{exact.compares_with} (python 3.11, numpy 2.1)"
    both = Origins.of({one: 3, other: 1}, here=one, numerics="lenient")
    mixed, rest = make_statements(guarantee, both)
    assert "up to rounding" in mixed.statement
    assert "3 models from python 3.11, numpy 2.1; 1 model from another one (numpy 2.1 -> 2.2)" in mixed.statement
    assert rest.is_claimed
    assert "rounding" not in rest.statement  # another promise: never in one sentence
