"""The environment of models: what it holds, how changes are told, and what an update does about them."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from functools import partial
from types import ModuleType

import numpy as np
import pytest
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expunge.core.errors import FormatError, ParameterError
from expunge.core.prf import RecipeKey
from expunge.core.records import Delete, Records
from expunge.training import environment
from expunge.training.ensemble import learn, update
from expunge.training.environment import Environment, Origins
from expunge.training.learners import AbstainingLearner, ScikitLearner, SlicedScikitLearner, as_learner
from expunge.training.learners.named import named_learner
from expunge.training.recipe import Recipe

OLD = Environment.of({"numpy": "1.0"})
NUMBERS = ("python", "expunge", "numpy", "scipy", "scikit-learn", "blas", "system", "processor", "processor features")


def records(count=40):
    X = np.random.default_rng(0).normal(size=(count, 3))
    return Records.build(X, (X[:, 0] > 0).astype(int))


def aged(state, shards):
    """The same state, as if some of its models had been trained elsewhere."""
    return replace(state, environments=tuple(OLD if n in shards else e for n, e in enumerate(state.environments)))


def test_it_tells_software_and_processor():
    here = Environment.here()
    assert set(dict(here.facts)) == set(NUMBERS)
    assert all(value for _, value in here.facts)
    assert here == Environment.here(as_learner(LogisticRegression()))
    assert here.digest == Environment.from_text(here.to_text()).digest
    assert pickle.loads(pickle.dumps(here)) == here
    assert str(here).startswith("python 3.")


def test_differences_are_readable():
    new = Environment.of({"numpy": "2.2.0", "processor features": "AVX2 AVX512F", "torch": "2.9"})
    old = Environment.of({"numpy": "2.1.0", "processor features": "SSE AVX2", "jax": "0.7"})
    assert new.differences(old) == (
        "jax 0.7 -> not used",
        "numpy 2.1.0 -> 2.2.0",
        "processor features: without SSE, with AVX512F",
        "torch not used -> 2.9",
    )
    assert new.digest != old.digest


@pytest.mark.parametrize("text", ["", "3", "[]", '{"numpy": 2}', '{"numpy": {}}'])
def test_damaged_facts_are_refused(text):
    with pytest.raises(FormatError, match=r"environment .* is damaged"):
        Environment.from_text(text)


@pytest.fixture
def strange(monkeypatch):
    """A package of somebody else's, with an estimator, an own learner and a function."""
    module = ModuleType("strangelearn")
    module.__version__ = "7.1"
    monkeypatch.setitem(sys.modules, "strangelearn", module)

    class Estimator(LogisticRegression):
        pass

    class Own:
        def fit(self, X, y, seed, *, weights=None):
            return self

        def environment(self):
            return {"strange device": "abacus"}

    def network():
        return None

    for each in (Estimator, Own, network):
        each.__module__ = "strangelearn.deep.inside"
    return Estimator, Own, network


def test_the_package_of_a_learner_counts_wherever_it_is(strange):
    kind, own, network = strange
    for estimator in (kind(), make_pipeline(StandardScaler(), kind()), BaggingClassifier(kind())):
        assert dict(Environment.here(as_learner(estimator)).facts)["strangelearn"] == "7.1"
        assert dict(Environment.here(AbstainingLearner(estimator)).facts)["strangelearn"] == "7.1"
    assert dict(Environment.here(partial(print, network)).facts)["strangelearn"] == "7.1"
    found = dict(Environment.here(AbstainingLearner(own())).facts)
    assert (found["strangelearn"], found["strange device"]) == ("7.1", "abacus")


def test_without_the_learner_versions_are_still_compared(strange):
    recorded = Environment.here(strange[1]())
    older = Environment.of({**dict(recorded.facts), "strangelearn": "6"})
    assert Environment.like(recorded) == recorded
    assert Environment.like(older).differences(older) == ("strangelearn 6 -> 7.1",)


def test_a_learner_of_scikit_learn_loads_no_other_package(tmp_path):
    import subprocess

    code = (
        "import sys; from expunge.training.environment import Environment; "
        "from expunge.training.learners.named import named_learner; Environment.here(named_learner('forest')); "
        "print({'jax', 'torch'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


@pytest.mark.parametrize(("package", "make"), [("jax", "jax"), ("torch", "torch")])
def test_jax_and_pytorch_tell_their_version_and_device(package, make):
    module = pytest.importorskip(package)
    if package == "jax":
        from expunge.training.learners import jax as own

        learner = own.JaxLearner(own.logistic(input_shape=(3,)), steps=1)
    else:
        from expunge.training.learners.pytorch import TorchLearner

        learner = TorchLearner(partial(module.nn.Linear, 3, 2), epochs=1)
    found = dict(Environment.here(learner).facts)
    assert found[package] == module.__version__
    assert found[f"{package} device"]
    assert dict(Environment.here(AbstainingLearner(learner)).facts) == found


# What an update does.


def test_every_model_carries_the_environment_it_was_trained_in():
    state = learn(records(), Recipe(as_learner(LogisticRegression()), 3, key=RecipeKey.from_seed(1)))
    assert state.environments == (Environment.here(),) * 3
    assert not state.foreign_shards
    assert not state.origins.changes
    after, report = update(aged(state, {1}), [])
    assert (report.touched, after.environments) == ((1,), (Environment.here(),) * 3)


LEARNERS = {
    "plain": ScikitLearner(SGDClassifier()),
    "sliced": SlicedScikitLearner(SGDClassifier(), num_slices=3),
    "exact": named_learner("ridge-exact"),
}


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_a_strict_update_trains_foreign_models_again_and_gives_what_the_recipe_gives(name):
    recipe = Recipe(LEARNERS[name], 4, key=RecipeKey.from_seed(2))
    state = learn(records(), recipe)
    spoilt = replace(aged(state, {0, 1, 2, 3}), models=(None,) * 4)  # they must not be looked at
    after, report = update(spoilt, [Delete(5)])
    fresh = learn(records().apply([Delete(5)])[0], recipe)
    assert report.touched == (0, 1, 2, 3)
    assert after.environments == fresh.environments
    X = records().gather(np.arange(40))[0]
    assert after.count_votes(X).tolist() == fresh.count_votes(X).tolist()
    assert pickle.dumps([*after.models]) == pickle.dumps([*fresh.models])


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_a_lenient_update_trains_the_touched_shards_only_and_counts(name):
    recipe = Recipe(LEARNERS[name], 4, key=RecipeKey.from_seed(2), numerics="lenient")
    state = aged(learn(records(), recipe), {0, 1, 2, 3})
    (shard,) = state.shards_of(5)
    spoilt = replace(state, models=tuple(None if n == shard else each for n, each in enumerate(state.models)))
    after, report = update(spoilt, [Delete(5)])
    assert report.touched == (shard,)
    assert after.origins.counts == ((OLD, 3), (Environment.here(), 1))
    assert after.origins.is_mixed
    assert not after.origins.retrains_everything
    assert all(after.models[n] is state.models[n] for n in range(4) if n != shard)


def test_an_update_that_forgot_environments_is_caught(monkeypatch):
    """The broken variant: models are believed to be from here, so that nothing is trained again."""
    state = aged(learn(records(), Recipe(LEARNERS["plain"], 4, key=RecipeKey.from_seed(2))), {0, 1, 2, 3})
    monkeypatch.setattr(type(state), "foreign_shards", frozenset())
    after, _ = update(state, [Delete(5)])
    assert after.origins.is_mixed


def test_a_pickled_recipe_meets_the_environment_where_it_is_loaded(monkeypatch):
    recipe = Recipe(as_learner(LogisticRegression()), 2, key=RecipeKey.from_seed(1))
    assert recipe.environment == Environment.here()
    data = pickle.dumps(recipe)
    monkeypatch.setattr(environment, "_common_facts", lambda: {"numpy": "99"})
    assert pickle.loads(data).environment == Environment.of({"numpy": "99"})


def test_numerics_is_one_of_two_words():
    with pytest.raises(ParameterError, match="numerics must be"):
        Recipe(as_learner(LogisticRegression()), 2, numerics="loose")


def test_origins_in_words():
    new = Environment.of({"numpy": "2.0", "python": "3"})
    found = Origins.of({new: 2, OLD: 1}, here=new, numerics="strict")
    other = "1 model from another one (numpy 2.0 -> 1.0, python 3 -> not used)"
    assert str(found) == f"2 models from python 3, numpy 2.0; {other}"
    assert found.changes == ((1, ("numpy 1.0 -> 2.0", "python not used -> 3")),)
    assert found.retrains_everything
    assert [each["count"] for each in found.to_dict()["models"]] == [2, 1]
