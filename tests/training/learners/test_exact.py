"""Models that rows leave without any training, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import expunge
from expunge.core.errors import ModelFormatError, ParameterError
from expunge.core.prf import RecipeKey
from expunge.core.records import Add, Delete, Records
from expunge.folder.codec import decode_model, encode_model
from expunge.training.ensemble import learn, update
from expunge.training.fallback import Fallback, GaussianNaiveBayes, NearestNeighbours, RidgeFallback
from expunge.training.learners import ExactLearner
from expunge.training.learners.named import exact_names, named_learner
from expunge.training.recipe import Recipe


def rows(count: int = 60):
    rng = np.random.default_rng(1)
    y = rng.integers(3, size=count)
    return rng.normal(size=(count, 4)) + y[:, None], y


def state_of(name: str, count: int = 60):
    X, y = rows(count)
    recipe = Recipe(named_learner(name), 1, key=RecipeKey.from_seed(0))
    return learn(Records.build(X, y, classes=[0, 1, 2]), recipe)


@pytest.fixture
def trainings(monkeypatch):
    """How many rows each training from scratch was given."""
    sizes: list[int] = []
    fit = ExactLearner.fit

    def counted(self, X, y, seed, *, weights=None):
        sizes.append(len(y))
        return fit(self, X, y, seed, weights=weights)

    monkeypatch.setattr(ExactLearner, "fit", counted)
    return sizes


@pytest.mark.parametrize("name", exact_names())
def test_deletions_and_additions_train_nothing(name, trainings):
    state = state_of(name)
    assert trainings == [60]
    before = encode_model(state.learner, state.models[0]).data
    first = state
    for number in range(10):
        state, report = update(state, [Delete(number), Add(id=f"n{number}", features=[number] * 4, label=1)])
        assert report.touched == (0,)
    assert trainings == [60]
    assert encode_model(state.learner, state.models[0]).data != before
    state, _ = update(state, [Delete(f"n{number}") for number in range(10)])
    back = [Add(id=n, features=first.records.gather(np.array([n]))[0][0], label=rows()[1][n]) for n in range(10)]
    state, _ = update(state, back)
    assert trainings == [60]
    assert encode_model(state.learner, state.models[0]).data == before


@pytest.mark.parametrize("name", exact_names())
def test_the_last_record_may_leave_and_another_come(name):
    X, y = rows(1)
    state = learn(Records.build(X, y, classes=[0, 1, 2]), Recipe(named_learner(name), 1))
    state, _ = update(state, [Delete(0)])
    assert state.count_votes(X).sum() == 0
    state, _ = update(state, [Add(id=5, features=X[0], label=2)])
    assert state.count_votes(X).tolist() == [[0, 0, 1]]


@pytest.mark.parametrize("name", exact_names())
def test_models_are_stored(name):
    state = state_of(name)
    stored = encode_model(state.learner, state.models[0])
    loaded = decode_model(state.learner, stored.format, stored.data)
    assert stored.format == "arrays"
    assert encode_model(state.learner, loaded).data == stored.data
    assert np.array_equal(loaded.predict(rows()[0]), state.models[0].predict(rows()[0]))


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (RidgeFallback(), {"counts": np.array([-1, 2, 3])}),
        (RidgeFallback(), {"sums": {"places": np.array([0]), "limbs": np.full((1, 3, 4), 2**40)}}),
        (GaussianNaiveBayes(), {"squares": {"places": np.array([0]), "limbs": np.zeros((1, 3, 5), np.int64)}}),
        (NearestNeighbours(), {"codes": np.array([7])}),
    ],
)
def test_a_damaged_model_is_refused(kind: Fallback, change):
    learner = ExactLearner(kind, 3)
    parts = learner.dump_model(learner.fit(*rows(), 0)) | change
    stored = encode_model(type("Damaged", (), {"dump_model": lambda *_: parts, "load_model": None})(), object())
    with pytest.raises(ModelFormatError):
        decode_model(learner, stored.format, stored.data)


def test_what_cannot_be_used_is_named():
    with pytest.raises(ParameterError, match="'ridge-exact' uses numbers only, and column 'town' holds categories"):
        named_learner("ridge-exact", columns={"age": "number", "town": "category"})
    with pytest.raises(ParameterError, match="without gaps"):
        named_learner("naive-bayes-exact", fills_gaps=True)
    with pytest.raises(ParameterError, match="'ridge-exact' has no option 'depth': it has penalty"):
        named_learner("ridge-exact", depth=3)
    with pytest.raises(ParameterError, match="kind must be"):
        ExactLearner("ridge")  # type: ignore[arg-type]
    X, y = rows(4)
    records = Records.build(X, y, classes=[0, 1, 2], weights=[1, 1, 2, 1])
    with pytest.raises(ParameterError, match="counts every record once: leave the weights out"):
        learn(records, Recipe(named_learner("ridge-exact"), 1))


@pytest.mark.parametrize("name", exact_names())
def test_in_a_folder(name, tmp_path, trainings):
    X, y = rows()
    folder = tmp_path / "d"
    with expunge.create(folder, named_learner(name), X, y, n_shards=1, promise="noise") as made:
        trainings.clear()
        made.delete([3, 4])
    with expunge.open(folder) as again:
        again.delete([5])
        found = encode_model(again.inside.state.learner, again.inside.state.models[0]).data
    assert not trainings
    left = np.delete(np.arange(60), [3, 4, 5])[::-1]
    records = Records.build(X[left], y[left], ids=left, classes=[0, 1, 2])
    anew = learn(records, Recipe(named_learner(name), 1))
    assert found == encode_model(anew.learner, anew.models[0]).data


@pytest.mark.parametrize("name", exact_names())
def test_in_an_estimator(name, trainings):
    X, y = rows()
    model = expunge.UnlearningClassifier(named_learner(name), n_shards=1, promise="noise", random_state=0)
    model.fit(X, y, ids=list(range(60)))
    trainings.clear()
    model.delete([3, 4])
    assert not trainings
    assert len(model.predict(X)) == 60


@pytest.mark.parametrize("name", exact_names())
def test_on_the_command_line(name, tmp_path):
    import pandas as pd
    from typer.testing import CliRunner

    from expunge.cli import app

    X, y = rows()
    pd.DataFrame(X, columns=list("abcd")).assign(label=y).to_csv(tmp_path / "d.csv", index_label="id")
    for line in (
        f"create {tmp_path}/d --data {tmp_path}/d.csv --label label --id id --learner {name} --shards 1",
        f"delete {tmp_path}/d --id 3",
    ):
        done = CliRunner().invoke(app, line.split())
        assert done.exit_code == 0, done.output
