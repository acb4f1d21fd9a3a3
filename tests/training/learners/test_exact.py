"""Models that rows leave without any training, bit for bit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import CategoricalNB, GaussianNB
from sklearn.preprocessing import OrdinalEncoder

import expunge
from expunge.core.errors import ModelFormatError, ParameterError, TrainingError
from expunge.core.prf import RecipeKey
from expunge.core.records import Add, AddMany, Delete, Records
from expunge.folder.codec import decode_model, encode_model
from expunge.training.ensemble import learn, update
from expunge.training.fallback import Fallback, GaussianNaiveBayes, NearestNeighbours, RidgeFallback
from expunge.training.learners import ExactLearner, UnlearningForest, exact
from expunge.training.learners.named import exact_names, named_learner
from expunge.training.recipe import Recipe


def rows(count: int = 60):
    rng = np.random.default_rng(1)
    y = rng.integers(3, size=count)
    return rng.normal(size=(count, 4)) + y[:, None], y


MIXED = {"age": "number", "town": "category", "spend": "number", "plan": "category"}


def customers(count: int, seed: int = 0, towns: int = 12):
    """A table with categories, rare ones too, and gaps in all columns."""
    rng = np.random.default_rng(seed)
    town = rng.choice([f"town-{number}" for number in range(towns)], count).astype(object)
    plan = rng.choice(["basic", "plus"], count).astype(object)
    age, spend = rng.integers(18, 80, count).astype(float), 1000 * rng.normal(size=count)
    score = (age - 50) / 20 + spend / 1000 + (plan == "plus") + 0.5 * rng.normal(size=count)
    age[rng.random(count) < 0.1], town[rng.random(count) < 0.1] = np.nan, np.nan
    frame = pd.DataFrame({"age": age, "town": town, "spend": spend, "plan": plan})
    return frame.astype({"town": object, "plan": object}), (score > 1).astype(int)


def mixed_state(name: str, rows, ids=None):
    X, y = rows
    recipe = Recipe(named_learner(name, columns=MIXED), 1, key=RecipeKey.from_seed(0))
    return learn(Records.build(X, y, ids=ids, classes=[0, 1], allow_missing=True), recipe)


def stored(state):
    return encode_model(state.learner, state.models[0]).data


def state_of(name: str, count: int = 60):
    X, y = rows(count)
    recipe = Recipe(named_learner(name), 1, key=RecipeKey.from_seed(0))
    return learn(Records.build(X, y, classes=[0, 1, 2]), recipe)


@pytest.fixture
def trainings(monkeypatch):
    """How many rows each training from scratch was given."""
    sizes: list[int] = []
    for kind in (ExactLearner, UnlearningForest):

        def counted(self, X, y, seed, *, weights=None, fit=kind.fit, **names):
            sizes.append(len(y))
            return fit(self, X, y, seed, weights=weights, **names)

        monkeypatch.setattr(kind, "fit", counted)
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
def test_any_history_of_a_mixed_table_leaves_the_model_of_what_is_there(name, trainings):
    """Categories come and go, gaps too, and a damaged variant that keeps an empty category would be caught here."""
    X, y = customers(80, towns=40)
    state = mixed_state(name, (X[:50], y[:50]))
    trainings.clear()
    rng = np.random.default_rng(1)
    here, away = list(range(50)), list(range(50, 80))
    for _ in range(25):
        leaving = rng.choice(here, int(rng.integers(0, 6)), replace=False).tolist()
        coming = rng.choice(away, min(len(away), int(rng.integers(1, 6))), replace=False).tolist()
        added = AddMany(ids=coming, features=X.iloc[coming].reset_index(drop=True), labels=y[coming])
        state, _ = update(state, [*(Delete(i) for i in leaving), added])
        here = [i for i in here if i not in leaving] + coming
        away = [i for i in away if i not in coming] + leaving
        left = sorted(here)
        fresh = mixed_state(name, (X.iloc[left].reset_index(drop=True), y[left]), ids=left)
        assert stored(state) == stored(fresh)
        assert (state.votes(X) == fresh.votes(X)).all()
    assert len(trainings) == 25  # those of the fresh ones


@pytest.mark.parametrize("name", exact_names())
def test_a_category_leaves_with_its_last_record(name):
    X, y = customers(60)
    X.loc[7, "town"] = "atlantis"
    state = mixed_state(name, (X, y))
    code = np.float64(exact._hash("atlantis")).tobytes()
    assert (code in stored(state)) == (name != "forest-exact")  # whose model holds no values of records
    state, _ = update(state, [Delete(7)])
    assert code not in stored(state)
    assert b"town-" not in stored(state)  # codes, no texts


@pytest.mark.parametrize("name", exact_names())
def test_mixed_tables_are_learned(name):
    X, y = customers(3000)
    state = mixed_state(name, (X[:2000], y[:2000]))
    answers = state.votes(X[2000:])[:, 0]
    assert (answers == y[2000:]).mean() > max(y[2000:].mean(), 1 - y[2000:].mean()) + 0.1
    loaded = decode_model(state.learner, "arrays", stored(state))
    assert (loaded.predict(X[2000:]) == answers).all()
    strange = X[2000:2003].assign(town="nowhere", age=np.nan)
    assert (state.votes(strange) >= 0).all()


def test_probabilities_rank():
    X, y = customers(3000)
    for name in ("naive-bayes-exact", "neighbours-exact", "forest-exact"):
        found = mixed_state(name, (X[:2000], y[:2000])).models[0].probabilities(X[2000:], 2)
        assert found.sum(axis=1) == pytest.approx(1)
        assert roc_auc_score(y[2000:], found[:, 1]) > 0.8
    ridge = mixed_state("ridge-exact", (X[:2000], y[:2000])).models[0]
    assert roc_auc_score(y[2000:], ridge.scores(X[2000:], 2)[:, 1]) > 0.85


@pytest.mark.parametrize("name", exact_names())
def test_an_estimator_ranks_a_mixed_table(name):
    X, y = customers(3000)
    model = expunge.UnlearningClassifier(named_learner(name, columns=MIXED), n_shards=1, random_state=0)
    model.fit(X[:2000], y[:2000], ids=list(range(2000))).delete([3])
    assert roc_auc_score(y[2000:], model.decision_function(X[2000:])) > 0.8
    assert model.predict_proba(X[2000:]).shape == (1000, 2)


def test_naive_bayes_counts_what_scikit_learn_counts():
    X, y = customers(500)
    numbers, towns = X[["spend"]], X[["town"]].fillna("(missing)")
    state = mixed_state("naive-bayes-exact", (X.assign(age=0.0, plan="all"), y))
    gaussian = GaussianNB(var_smoothing=1e-9).fit(numbers, y)
    coded = OrdinalEncoder().fit(towns)
    categorical = CategoricalNB().fit(coded.transform(towns), y)
    joint = gaussian.predict_joint_log_proba(numbers) + categorical.predict_joint_log_proba(coded.transform(towns))
    joint -= np.log(np.bincount(y) / len(y))
    wanted = np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None])
    assert state.models[0].probabilities(X.assign(age=0.0, plan="all"), 2) == pytest.approx(wanted, rel=1e-5)


def test_units_do_not_matter_to_a_scaled_ridge():
    X, y = customers(400)
    small = X.assign(spend=X["spend"] * 2.0**-40)
    first, second = (mixed_state("ridge-exact", (each, y)).models[0] for each in (X, small))
    assert first.scores(X, 2) == pytest.approx(second.scores(small, 2), abs=1e-6)


@pytest.mark.parametrize("most", [6, 12, 15])
def test_of_too_many_categories_the_first_have_columns_under_any_history(most, monkeypatch, trainings):
    """No record may stop an update: one with a new category either has no column, or all sums are made again."""
    monkeypatch.setattr(exact, "_MOST_CATEGORIES", most)
    X, y = customers(120, towns=14)
    few = X["town"].isin(["town-1", "town-2"])
    here = np.flatnonzero(few)[:10].tolist()
    state = mixed_state("ridge-exact", (X.iloc[here].reset_index(drop=True), y[here]), ids=here)
    trainings.clear()
    rng = np.random.default_rng(2)
    for _ in range(20):
        away = [row for row in range(120) if row not in here]
        gone = rng.choice(here, int(rng.integers(0, len(here) // 2 + 1)), replace=False).tolist()
        new = rng.choice(away, int(rng.integers(1, 6)), replace=False).tolist()
        added = AddMany(ids=new, features=X.iloc[new].reset_index(drop=True), labels=y[new])
        state, _ = update(state, [*map(Delete, gone), added])
        here = [row for row in here if row not in gone] + new
        fresh = mixed_state("ridge-exact", (X.iloc[sorted(here)].reset_index(drop=True), y[sorted(here)]), sorted(here))
        assert stored(state) == stored(fresh)
        assert sum(map(len, fresh.models[0].vocabulary)) <= most
    assert len(trainings) < 40 if most == 15 else len(trainings) > 20  # some updates had to train


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


@pytest.mark.parametrize("name", exact_names())
@pytest.mark.parametrize("value", [1e200, -np.inf, 1e-200])
def test_numbers_of_any_size_come_and_go(name, value):
    """A record that could not be read would stop all updates after it."""
    X, y = rows()
    records = Records.build(X, y, classes=[0, 1, 2], allow_missing=True)
    state = learn(records, Recipe(named_learner(name), 1, key=RecipeKey.from_seed(0)))
    before = stored(state)
    state, _ = update(state, [Add(id="large", features=[0.5, value, 1, 2], label=1)])
    assert len(state.votes(X)) == 60
    assert stored(state) != before
    state, _ = update(state, [Delete("large")])
    assert stored(state) == before


def test_columns_that_hold_no_numbers_are_named():
    X, y = customers(60)
    for learner in (UnlearningForest(), UnlearningForest(categories=("plan",)), ExactLearner(RidgeFallback())):
        with pytest.raises(TrainingError, match=r"column 'town' holds something other than numbers: name it in cat"):
            expunge.UnlearningClassifier(learner, n_shards=1).fit(X.assign(age=0.0), y)
    model = expunge.UnlearningClassifier(UnlearningForest(categories=("town", "plan")), n_shards=1).fit(X, y)
    assert model.predict(X).shape == (60,)


def test_what_cannot_be_used_is_named():
    with pytest.raises(ParameterError, match="'ridge-exact' has no option 'depth': it has is_scaled, penalty"):
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
        recipe = Recipe(named_learner(name), 1, key=again.inside.state.key)
    assert not trainings
    left = np.delete(np.arange(60), [3, 4, 5])[::-1]
    records = Records.build(X[left], y[left], ids=left, classes=[0, 1, 2])
    anew = learn(records, recipe)
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
