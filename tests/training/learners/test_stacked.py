"""Classifiers of many shards that are asked together answer as each does about a row alone, to the bit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from expunge import Delete, Recipe, RecipeKey, Records, learn, update
from expunge.training.learners import ScikitLearner, stacked
from expunge.training.learners.named import column_kinds, named_learner
from expunge.training.learners.protocol import OneByOneVoter, ShardData, fit_many, make_voter, mean_opinion
from expunge.training.learners.tabular import PerShardVoter


def make_table(rows):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, rows),
            "region": rng.choice(["north", "south", None], rows),
            "income": np.where(rng.random(rows) < 0.2, np.nan, rng.normal(30_000, 9_000, rows)),
            "town": rng.integers(0, 5, rows).astype(str),
        }
    )
    return frame, ((frame["age"] // 21) % 4).to_numpy().astype(np.int64)


LEARNERS = {
    "naive Bayes": lambda: named_learner("naive-bayes"),
    "counts": lambda: ScikitLearner(MultinomialNB()),
    "tree": lambda: named_learner("tree"),
    "random tree": lambda: ScikitLearner(ExtraTreeClassifier()),
    "forest": lambda: named_learner("forest", n_estimators=4),
    "extra trees": lambda: named_learner("extra-trees", n_estimators=3),
    "boosting": lambda: named_learner("boosting", max_iter=4, min_samples_leaf=3),
    "gradient boosting": lambda: ScikitLearner(GradientBoostingClassifier(n_estimators=4)),
    "neighbours": lambda: named_learner("neighbours"),
    "neighbours in a tree": lambda: ScikitLearner(KNeighborsClassifier(3, algorithm="kd_tree")),
}


def make_rows(name, num_classes, rows=600):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(rows, 7))
    y = (X[:, 0] * 2 + rng.normal(size=rows)).round().astype(np.int64) % num_classes
    return (np.abs(X).round() if name == "counts" else X), y


def train_shard(learner, X, y, shard, size, rng):
    picks = rng.choice(len(y), size, replace=False)
    rows = X.iloc[picks] if hasattr(X, "iloc") else X[picks]
    return fit_many(learner, [ShardData(shard, rows, y[picks], None, int(rng.integers(2**31)))])[0]


def odd_rows(X, rows=20):
    """One is a record, and models refuse some."""
    found = np.array(X[-rows:])
    found[0], found[2, 3], found[3, 1], found[4, 0] = X[0], np.nan, 1e300, np.inf
    return found


@pytest.mark.parametrize("num_classes", [2, 3, 12])
@pytest.mark.parametrize("name", LEARNERS)
def test_the_answer_about_a_row_is_that_of_each_model_about_the_row_alone(name, num_classes):
    """Twelve classes: NumPy adds eight numbers and more in another order if they lie in another order in memory."""
    learner, rng = LEARNERS[name](), np.random.default_rng(1)
    X, y = make_rows(name, num_classes)
    sizes = [0, 1, *rng.integers(2, 60, 9)]
    models = [train_shard(learner, X, y, shard, size, rng) for shard, size in enumerate(sizes)]
    voter = learner.make_voter(models, num_classes)
    assert type(voter) is PerShardVoter
    queries = odd_rows(X)
    assert len(queries) > stacked.FEW_ROWS  # many rows go another way than few
    alone = [queries[row : row + 1] for row in range(len(queries))]
    votes = np.concatenate([OneByOneVoter(models, num_classes).votes(row) for row in alone])
    found = [mean_opinion(models, row, num_classes, "probabilities") for row in alone]
    assert (votes[:, 2:] >= 0).any()
    for rows in (queries, np.asfortranarray(queries)):
        np.testing.assert_array_equal(voter.votes(rows), votes)
        np.testing.assert_array_equal(voter.mean_probabilities(rows), np.concatenate(found))
    np.testing.assert_array_equal(np.concatenate([voter.votes(row) for row in alone]), votes)
    np.testing.assert_array_equal(
        np.concatenate([voter.mean_probabilities(row) for row in alone]), np.concatenate(found)
    )


def test_equally_far_neighbours_are_chosen_as_the_model_chooses_them():
    """Rows of few whole numbers: many records are equally far, and the models' own order decides."""
    rng = np.random.default_rng(2)
    X = rng.integers(0, 3, size=(400, 4)).astype(np.float64)
    y = rng.integers(0, 2, 400)
    learner = ScikitLearner(KNeighborsClassifier(4))
    models = [train_shard(learner, X, y, shard, 50, rng) for shard in range(5)]
    voter = learner.make_voter(models, 2)
    for row in range(8):
        query = X[row : row + 1]
        expected = mean_opinion(models, query, 2, "probabilities")
        np.testing.assert_array_equal(voter.mean_probabilities(query), expected)
        np.testing.assert_array_equal(voter.mean_probabilities(X[:20])[row : row + 1], expected)


def test_a_model_of_numbers_with_32_bits_is_asked_itself():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 3)).astype(np.float32)
    y = (X[:, 0] > 0).astype(np.int64)
    for learner in (named_learner("neighbours"), named_learner("tree"), ScikitLearner(GaussianNB())):
        models = [train_shard(learner, X, y, shard, 40, rng) for shard in range(5)]
        single = OneByOneVoter(models, 2)
        np.testing.assert_array_equal(make_voter(learner, models, 2).votes(X[:1]), single.votes(X[:1]))


@pytest.mark.parametrize("is_table", [False, True])
@pytest.mark.parametrize("name", ["logistic", "linear-svm", "naive-bayes", "tree", "forest", "boosting", "neighbours"])
def test_a_voter_with_changed_models_is_the_voter_made_anew(name, is_table):
    """Over a history of changes, in which shards become empty or lose classes and categories."""
    options = {"forest": {"n_estimators": 3}, "boosting": {"max_iter": 3, "min_samples_leaf": 3}}.get(name, {})
    rng = np.random.default_rng(5)
    frame, y = make_table(400)
    X = frame if is_table else rng.normal(size=(400, 5)) + y[:, np.newaxis]
    y = y % 2
    learner = named_learner(name, columns=column_kinds(X), **options)
    sizes = [0, 3, 40, 40, 40, 45, 60]
    models = [train_shard(learner, X, y, shard, int(rng.choice(sizes)), rng) for shard in range(12)]
    voter, queries, derived = learner.make_voter(models, 2), X[:18], 0
    for _ in range(14):
        shards = rng.choice(12, rng.integers(1, 3), replace=False).tolist()
        changed = {shard: train_shard(learner, X, y, shard, int(rng.choice(sizes)), rng) for shard in shards}
        votes = voter.votes(queries)
        models = [changed.get(shard, model) for shard, model in enumerate(models)]
        anew, following = learner.make_voter(models, 2), voter.with_changed(changed)
        np.testing.assert_array_equal(voter.votes(queries), votes)  # a round before may still be in service
        if following is not None:
            derived += 1
            np.testing.assert_array_equal(following.votes(queries), anew.votes(queries))
            for rows in (queries, queries[2:3]):
                assert np.array_equal(following.count(rows), anew.count(rows))
                if name != "linear-svm":
                    np.testing.assert_array_equal(following.mean_probabilities(rows), anew.mean_probabilities(rows))
        voter = anew if following is None else following
    assert derived >= 3


def test_a_table_of_nodes_forgets_trees_that_are_gone():
    rng = np.random.default_rng(6)
    X, y = make_rows("tree", 2)

    def fit():
        picks = rng.choice(len(y), 100)
        return DecisionTreeClassifier().fit(X[picks], y[picks])

    stack = stacked.TreeStack.of([fit() for _ in range(3)])
    for _ in range(400):
        following = stack.with_changed({1: fit()})
        if following is None:
            return
        stack = following
    raise AssertionError("the table grew without end")


def test_an_update_changes_the_voter_of_the_round_before(monkeypatch):
    """No voter is made anew, a round that was never asked is skipped, and no model of another shard is looked at."""
    X, y = make_rows("naive Bayes", 2)
    recipe = Recipe(ScikitLearner(GaussianNB()), 10, key=RecipeKey.from_seed(1))
    first = learn(Records.build(X, y), recipe)
    before = first.mean_probabilities(X[:5])
    assert first.has_probabilities
    second, _ = update(first, [Delete(3)])
    third, report = update(second, [Delete(4), Delete(5)])
    expected = learn(third.records, recipe)

    def refuse(*arguments):
        raise AssertionError("made anew")

    with monkeypatch.context() as patched:
        patched.setattr(ScikitLearner, "make_voter", refuse)
        assert third.has_probabilities
        found = third.mean_probabilities(X[:5])
    np.testing.assert_array_equal(found, expected.mean_probabilities(X[:5]))
    np.testing.assert_array_equal(first.mean_probabilities(X[:5]), before)
    assert not np.array_equal(found, before)
    assert report.num_retrained <= 2
