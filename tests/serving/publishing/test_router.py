from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from expunge import Guarantee, UnlearningClassifier
from expunge.core.errors import ParameterError, VacuousPromiseWarning
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.serving.deployment import Deployment
from expunge.serving.promises import Router
from expunge.serving.publishing import ConsensusPublisher, RouterFront
from expunge.serving.publishing.router import choose_threshold
from expunge.training.fallback import GaussianNaiveBayes, NearestNeighbours, RidgeFallback
from expunge.training.learners import ScikitLearner
from expunge.training.sampling import IndependentSampler

WEAK = Guarantee(8.0, 0.05, 0.05)
GATE = {"target": WEAK, "max_predictions": 10_000, "max_generations": 3}
SEED = {"random_state": 0}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    y = np.arange(4000) % 2
    X = rng.normal(size=(4000, 2)) * 1.5
    X[:, 0] += np.where(y == 1, 2, -2)
    return X, y


def deploy(data, *, seed, **options):
    front = RouterFront(RidgeFallback(), num_queries=500, num_throw_away=100, **options)
    rng = Randomness.from_seed(seed)
    return Deployment(
        Records.build(*data),
        ScikitLearner(LogisticRegression()),
        num_shards=300,
        sampler=IndependentSampler(0.02),
        publisher=ConsensusPublisher(num_shards=300, rng=rng, target=WEAK, max_predictions=10_000, max_generations=3),
        rng=rng,
        front=front,
    )


def test_easy_queries_go_to_the_ensemble_and_hard_ones_to_the_fallback(data):
    deployment = deploy(data, seed=0)
    serving = deployment.inside.serving
    assert 0.1 < serving.calibration.ensemble_share < 1
    assert serving.calibration.dirty_chance <= 0.05
    far, near = np.array([[6.0, 0.0], [-6.0, 0.0]]), np.array([[0.0, 0.0]])
    assert serving.is_easy(far).tolist() == [True, True]
    assert serving.is_easy(near).tolist() == [False]
    assert deployment.predict(far).tolist() == [1, 0]
    deployment.predict(near)
    assert (serving.traffic.ensemble, serving.traffic.fallback) == (2, 1)
    assert serving.traffic.ensemble_share == pytest.approx(2 / 3)
    assert deployment.inside.budget.predictions == 2  # the fallback's answers are not counted
    assert not deployment.inside.budget.exhausted


def test_routed_traffic_keeps_the_generation_clean(data):
    deployment = deploy(data, seed=0)
    rng = np.random.default_rng(2)
    X = rng.normal(size=(500, 2))
    X[:, 0] += np.where(np.arange(500) % 2 == 1, 2, -2)
    accuracy = (deployment.predict(X) == np.arange(500) % 2).mean()
    assert accuracy > 0.95
    assert not deployment.inside.budget.exhausted
    deployment.delete([3])
    assert deployment.inside.generation == 1


def test_the_route_does_not_depend_on_the_secret_randomness(data):
    """With a fixed threshold the route is a function of D^t and x alone; so with a calibrated one (public coins).

    Changing r and nothing else leaves every route as it was.
    """
    X = np.random.default_rng(3).normal(size=(200, 2)) * 2
    fixed = [deploy(data, seed=seed, threshold=0.5).inside.serving.is_easy(X) for seed in (0, 1)]
    assert fixed[0].tolist() == fixed[1].tolist()
    assert 0 < fixed[0].sum() < 200
    deployment = deploy(data, seed=0)
    other = deploy(data, seed=1)
    openings = [d.inside.serving.opening for d in (deployment, other)]
    assert openings[0].state.key != openings[1].state.key
    front = RouterFront(RidgeFallback(), num_queries=500, num_throw_away=100)
    rounds = [front.open_round(o) for o in openings]
    assert rounds[0].calibration == rounds[1].calibration
    assert rounds[0].is_easy(X).tolist() == rounds[1].is_easy(X).tolist()


def test_the_fallback_follows_the_updates(data):
    deployment = deploy(data, seed=0)
    deployment.delete(range(0, 40))
    deployment.add(np.zeros((2, 2)), [0, 1], ["a", "b"])
    serving = deployment.inside.serving
    fresh = RidgeFallback().fit_records(deployment.records)
    X = np.random.default_rng(4).normal(size=(50, 2))
    np.testing.assert_array_equal(serving.model.margin(X), fresh.margin(X))
    assert serving.opening.previous is None  # nothing of earlier rounds is kept alive
    again = pickle.loads(pickle.dumps(deployment))
    np.testing.assert_array_equal(again.inside.serving.model.margin(X), fresh.margin(X))


def test_threshold_choice():
    margins = np.linspace(0, 1, 400)
    shares = 0.55 + 0.44 * margins
    found = choose_threshold(margins, shares, sure_share=0.8, num_votes=200, num_queries=1000, dirty_chance=0.05)
    assert 0.6 < found.threshold < 1
    assert found.ensemble_share == pytest.approx((margins >= found.threshold).mean())
    busier = choose_threshold(margins, shares, sure_share=0.8, num_votes=200, num_queries=10**6, dirty_chance=0.05)
    assert busier.threshold >= found.threshold
    nothing = choose_threshold(
        margins, np.full(400, 0.5), sure_share=0.8, num_votes=200, num_queries=10, dirty_chance=0.05
    )
    assert nothing.threshold == np.inf
    assert nothing.ensemble_share == 0


def test_without_a_certified_gate_the_ensemble_answers_everything(data):
    model = UnlearningClassifier(n_shards=5, promise="router", random_state=0).fit(*data)
    assert model.deployment_.inside.serving.is_easy(data[0]).all()
    chosen = UnlearningClassifier(n_shards=5, promise=Router(fallback=NearestNeighbours(num_neighbours=3)))
    assert chosen.fit(*data).score(*data) > 0.9


def mixed(n, seed):
    """Two columns of numbers with gaps and one of categories, which decides most."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    plan = np.where(rng.random(n) < 0.97, y, 1 - y)
    table = pd.DataFrame({"a": rng.normal(y, 1.0), "b": rng.normal(size=n), "plan": np.array(["basic", "plus"])[plan]})
    table.loc[rng.random(n) < 0.1, "a"] = np.nan
    return table, y


def coded(table):
    return np.column_stack([table["a"].fillna(0.5), table["b"], table["plan"] == "plus"])


OF_TABLES = make_pipeline(ColumnTransformer([("all", FunctionTransformer(coded), ["a", "b", "plan"])]), GaussianNB())


@pytest.mark.parametrize("fallback", [None, GaussianNaiveBayes(), NearestNeighbours(num_neighbours=15)])
def test_a_router_in_front_of_a_mixed_table(fallback):
    """Its fallback reads the same table, follows the updates to the bit, and the figures say what it does."""
    X, y = mixed(1200, 0)
    promise = Router(fallback=fallback, num_queries=50, dirty_chance=0.3, num_throw_away=40, **GATE)
    model = UnlearningClassifier(OF_TABLES, promise=promise, n_shards=200, inclusion_probability=0.1, **SEED).fit(X, y)
    serving = model.deployment_.inside.serving
    assert model.score(*mixed(400, 1)) > 0.9
    share = serving.figures["router"]["ensemble_share"]
    assert share == serving.calibration.ensemble_share
    model.delete(list(range(0, 60)))
    after = model.deployment_.inside
    fresh = after.serving.fallback.fit_records(after.state.records.compacted())
    queries = mixed(200, 2)[0]
    found, wanted = after.serving.model.assess(queries), fresh.assess(queries)
    assert found.margins.tobytes() == wanted.margins.tobytes()
    assert found.codes.tobytes() == wanted.codes.tobytes()


def test_a_fallback_that_answers_everything_is_told():
    X, y = mixed(600, 0)
    noise = np.random.default_rng(0).integers(2, size=600)
    model = UnlearningClassifier(
        OF_TABLES,
        promise=Router(**GATE),
        n_shards=200,
        inclusion_probability=0.1,
        **SEED,
    ).fit(X, noise)
    figures = model.deployment_.inside.serving.figures
    assert figures == {"router": {"ensemble_share": 0.0, "fallback": "RidgeFallback"}}
    fixed = UnlearningClassifier(n_shards=5, promise=Router(threshold=0.5), **SEED)
    with pytest.warns(VacuousPromiseWarning):
        fixed.fit(X[["b"]], y)
    assert fixed.deployment_.inside.serving.figures["router"]["ensemble_share"] is None


def test_bad_options():
    with pytest.raises(ParameterError, match="dirty_chance"):
        RouterFront(dirty_chance=0)
    with pytest.raises(ParameterError, match="num_queries"):
        RouterFront(num_queries=0)
    with pytest.raises(ParameterError, match="promise"):
        UnlearningClassifier(promise="bogus").fit(np.eye(4), [0, 1, 0, 1])


class OwnFallback(RidgeFallback):
    """Somebody's own: nobody here has proved that it forgets."""


def test_a_fallback_of_ones_own_is_named_among_the_assumptions(data):
    rows = data[0][:200], data[1][:200]
    for fallback, is_named in ((OwnFallback(), True), (RidgeFallback(), False)):
        model = UnlearningClassifier(n_shards=5, promise=Router(fallback=fallback), random_state=0).fit(*rows)
        named = [line for line in model.guarantee().assumptions if "OwnFallback" in line]
        assert bool(named) == is_named
