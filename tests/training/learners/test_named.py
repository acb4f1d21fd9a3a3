from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from expunge.core.errors import ParameterError
from expunge.folder.codec import decode_model, encode_model
from expunge.training.learners import ScikitLearner, SlicedLearner
from expunge.training.learners.linear import LinearVoter
from expunge.training.learners.named import AsText, LearnerSpec, column_kinds, learner_names, named_learner, takes_gaps

LINEAR = ["logistic", "linear-svm", "ridge", "sgd"]


@pytest.fixture
def numbers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4)) * [1, 100, 0.01, 1] + [0, 500, 0, 0]
    return X, (X[:, 0] + 0.01 * (X[:, 1] - 500) > 0).astype(np.int64)


@pytest.fixture
def table():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, 120),
            "income": rng.normal(30_000, 9_000, 120),
            "region": pd.Series(rng.choice(["north", "south", "east"], 120)),
            "plan": pd.Series(rng.choice(["a", "b"], 120), dtype="category"),
            "member": rng.integers(0, 2, 120).astype(bool),
        }
    )
    frame.loc[3, "region"] = None
    y = (30 * (frame["region"] == "north") + frame["age"] > 60).to_numpy().astype(np.int64)
    return frame, y


@pytest.mark.parametrize("name", learner_names())
def test_learns_numbers_of_very_different_scales(name, numbers):
    X, y = numbers
    model = named_learner(name).fit(X, y, 1)
    assert (model.predict(X) == y).mean() > 0.85


@pytest.mark.parametrize("name", learner_names())
def test_learns_a_mixed_table_with_gaps_and_new_categories(name, table):
    frame, y = table
    learner = named_learner(name, columns=column_kinds(frame))
    model = learner.fit(frame, y, 1)
    assert (model.predict(frame) == y).mean() > 0.85  # the larger class has 0.52
    fresh = frame.head(3).copy()
    fresh["region"] = ["unheard of", None, "south"]
    assert set(model.predict(fresh)) <= {0, 1}


@pytest.mark.parametrize("name", learner_names())
def test_a_shard_without_a_value_in_a_column_can_be_trained_and_can_vote(name, table):
    frame, y = table
    poor = frame.head(30).copy()
    poor["income"] = np.nan
    poor["region"] = pd.Series([None] * 30, dtype=object)
    model = named_learner(name, columns=column_kinds(frame)).fit(poor, y[:30], 1)
    assert set(model.predict(frame)) <= {0, 1}


@pytest.mark.parametrize("name", learner_names())
def test_learns_from_words(name):
    rng = np.random.default_rng(3)
    words = np.array(["late", "parcel", "friendly", "call", "again", "invoice", "refund", "happy"])
    notes = [" ".join(rng.choice(words, 4)) for _ in range(150)]
    y = np.array(["refund" in note for note in notes]).astype(np.int64)
    frame = pd.DataFrame({"age": rng.normal(size=150), "note": pd.Series([*notes[:-1], None], dtype=object)})
    learner = named_learner(name, columns={"age": "number", "note": "text"})
    model = learner.fit(frame, y, 1)
    least = {"naive-bayes": 0.65, "neighbours": 0.75}.get(name, 0.85)  # the larger class has 0.59
    assert (model.predict(frame) == y).mean() > least
    stored = encode_model(learner, model, trusted=())
    again = decode_model(learner, stored.format, stored.data, trusted=())
    assert np.array_equal(again.predict(frame), model.predict(frame))
    nothing = pd.DataFrame({"age": np.arange(8.0), "note": pd.Series([None] * 8, dtype=object)})
    assert set(learner.fit(nothing, np.arange(8) % 2, 1).predict(frame)) <= {0, 1}


@pytest.mark.parametrize("name", learner_names())
def test_a_shard_may_have_no_value_at_all_in_a_column(name, numbers):
    """A deletion may remove the last value of a column, and must still be done."""
    X, y = numbers
    X = X.copy()
    X[:, 3] = np.nan
    learner = named_learner(name, fills_gaps=True)
    model = learner.fit(X, y, 1)
    assert (model.predict(X) == y).mean() > 0.8
    stored = encode_model(learner, model, trusted=())
    again = decode_model(learner, stored.format, stored.data, trusted=())
    rows = np.vstack([X, np.where(np.isnan(X), 7.0, X)])  # other shards may have values there
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))


@pytest.mark.parametrize("name", learner_names())
def test_gaps_in_numbers_are_filled_within_the_shard_if_asked(name, numbers):
    X, y = numbers
    X = X.copy()
    X[::7, 2] = np.nan
    learner = named_learner(name, fills_gaps=True)
    assert (learner.fit(X, y, 1).predict(X) == y).mean() > 0.8
    if takes_gaps(named_learner(name)):
        assert "fill" not in dict(getattr(learner.estimator, "steps", []))
    else:
        assert learner.estimator.steps[0][0] == "fill"
        with pytest.raises(ValueError, match="NaN"):
            named_learner(name).fit(X, y, 1)


@pytest.mark.parametrize("name", learner_names())
def test_the_seed_is_the_only_randomness(name, numbers):
    X, y = numbers
    learner = named_learner(name)
    first, second = learner.fit(X, y, 7), learner.fit(X, y, 7)
    assert np.array_equal(first.predict(X * 1.3), second.predict(X * 1.3))


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("as_frame", [False, True])
def test_linear_learners_vote_as_one_product(name, as_frame, numbers):
    X, y = numbers
    rows = pd.DataFrame(X, columns=list("abcd")) if as_frame else X
    learner = named_learner(name, columns=column_kinds(rows))
    models = [learner.fit(rows[start::2], y[start::2], start) for start in range(2)]
    voter = learner.make_voter(models, 2)
    assert isinstance(voter._voter, LinearVoter)
    expected = np.stack([model.predict(rows) for model in models], axis=1)
    assert np.array_equal(voter.votes(rows), expected)


def test_kinds_come_from_types_alone(table):
    frame, _ = table
    expected = {"age": "number", "income": "number", "region": "category", "plan": "category", "member": "category"}
    assert column_kinds(frame) == expected
    assert column_kinds(frame.head(0)) == expected
    assert column_kinds(np.zeros((2, 2))) is None
    with pytest.raises(ParameterError, match="'when' holds dates"):
        column_kinds(pd.DataFrame({"when": pd.to_datetime(["2020-01-01"])}))


def test_categories_of_mixed_types_and_missing_marks():
    frame = pd.DataFrame({"a": [1, "one", None, 2.5] * 5, "b": pd.array(["x", pd.NA] * 10, dtype="string")})
    y = np.array([0, 1, 0, 1] * 5)
    model = named_learner("logistic", columns=column_kinds(frame)).fit(frame, y, 0)
    assert np.array_equal(model.predict(frame), y)


def test_options_go_to_the_classifier():
    learner = named_learner("forest", n_estimators=7)
    assert learner.estimator.n_estimators == 7
    assert named_learner("logistic", C=0.5).estimator[-1].C == 0.5


def test_spec_is_plain_json_and_makes_the_same_learner(table):
    frame, y = table
    spec = LearnerSpec("logistic", {"C": 0.25}, column_kinds(frame))
    again = LearnerSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert again == spec
    assert list(again.columns) == list(frame.columns)
    first, second = spec.make().fit(frame, y, 3), again.make().fit(frame, y, 3)
    assert np.array_equal(first.predict(frame), second.predict(frame))
    assert spec.module is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: named_learner("logistics"), "unknown learner 'logistics': did you mean logistic?"),
        (lambda: named_learner("logistic", c=1), "learner 'logistic' has no option 'c': it has C, "),
        (lambda: named_learner("logistic", random_state=1), "has no option 'random_state'"),
        (lambda: named_learner("logistic", C=-1.0), "learner 'logistic': The 'C' parameter"),
        (
            lambda: named_learner("tree", columns={"a": "date", "b": "category"}),
            "column 'a' must be one of number, category, text",
        ),
        (lambda: named_learner("tree", columns={1: "category"}), "names that are texts"),
        (
            lambda: named_learner("ridge-exact", columns={"a": "text"}),
            "cannot read text in words: leave out column 'a'",
        ),
        (lambda: LearnerSpec("forest", {"n": object()}), "must be plain values"),
    ],
)
def test_bad_requests_get_one_line(make, message):
    with pytest.raises(ParameterError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


FACTORIES = """
from sklearn.naive_bayes import BernoulliNB
from expunge.training.learners import LookupTableLearner, SlicedScikitLearner
estimator = lambda alpha=1.0: BernoulliNB(alpha=alpha)
learner = LookupTableLearner
sliced = lambda: SlicedScikitLearner(BernoulliNB(), 3)
number = 3
nothing = lambda: 3
broken = lambda: 1 / 0
"""


@pytest.fixture
def factories(tmp_path, monkeypatch):
    (tmp_path / "company_factories.py").write_text(FACTORIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "company_factories"


def test_factories(factories):
    made = LearnerSpec(f"{factories}:estimator", {"alpha": 0.5}).make()
    assert isinstance(made, ScikitLearner)
    assert made.estimator.alpha == 0.5
    assert type(LearnerSpec(f"{factories}:learner").make()).__name__ == "LookupTableLearner"
    assert isinstance(LearnerSpec(f"{factories}:sliced").make(), SlicedLearner)
    assert LearnerSpec(f"{factories}:learner").module == factories


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:make", "the module 'no_such_module' cannot be imported"),
        (":make", "learner must be 'package.module:name'"),
        ("company_factories:missing", "has no 'missing'"),
        ("company_factories:number", "'company_factories:number' is not a function that makes a learner"),
        ("company_factories:nothing", "returned a int, which has no fit"),
        ("company_factories:broken", "the factory failed: ZeroDivisionError"),
    ],
)
def test_bad_factories_get_one_line(factories, name, message):
    with pytest.raises(ParameterError, match=message) as caught:
        LearnerSpec(name).make()
    assert "\n" not in str(caught.value)


def test_every_name_has_a_line():
    names = learner_names()
    assert {"logistic", "forest", "boosting", "mlp", "linear-svm", "naive-bayes", "neighbours"} <= set(names)
    assert all(words and "\n" not in words for words in names.values())


def test_rare_texts_become_one_whatever_their_order_and_labels():
    texts = pd.DataFrame({"town": ["a"] * 5 + ["b"] * 3 + ["c", "d", "e", "e"], "plan": ["x", "y", None] * 4})
    found = AsText(3).fit(texts, range(12)).transform(texts)
    assert sorted(set(found[:, 0])) == ["(rare)", "a", "b"]
    assert sorted(set(found[:, 1])) == ["(missing)", "x", "y"]
    shuffled = AsText(3).fit(texts.sample(frac=1, random_state=0))
    np.testing.assert_array_equal(shuffled.transform(texts), found)
    new = pd.DataFrame({"town": ["zzz", "a", None], "plan": ["zzz", "x", None]})
    assert shuffled.transform(new).tolist() == [["(rare)", "zzz"], ["a", "x"], ["(rare)", "(missing)"]]
    assert shuffled.groups_texts
    assert not AsText(12).fit(texts).groups_texts
    assert not AsText().fit(texts).groups_texts


def test_many_categories_stay_few_columns_where_tables_are_dense():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"town": rng.choice([f"town {i}" for i in range(900)], 2000), "age": rng.normal(size=2000)})
    y = (frame["age"] > 0).to_numpy().astype(int)
    learner = named_learner("naive-bayes", columns=column_kinds(frame))
    model = learner.fit(frame, y, 1)
    assert model.estimator[-1].n_features_in_ == 257
    assert named_learner("logistic", columns=column_kinds(frame)).fit(frame, y, 1).estimator[-1].n_features_in_ > 700
    encoded = encode_model(learner, model)
    loaded = decode_model(learner, encoded.format, encoded.data)
    new = pd.DataFrame({"town": ["town 1", "nowhere", None], "age": [0.1, -0.2, 0.3]})
    np.testing.assert_array_equal(loaded.estimator.predict_proba(new), model.estimator.predict_proba(new))
    voted = model.voter([model], 2) if hasattr(model, "voter") else None
    if voted is not None:
        np.testing.assert_array_equal(voted.count(new).argmax(axis=1), model.predict(new))
