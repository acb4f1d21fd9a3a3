"""XGBoost, LightGBM and CatBoost: to the bit by the recipe, stored without trust, and refused in one line."""

from __future__ import annotations

import os
import pickle
import random
import re
import signal
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import expunge
from expunge import Delete, IndependentSampler, Recipe, RecipeKey, Records, learn, update
from expunge.core.errors import MissingExtraError, ModelFormatError, ParameterError
from expunge.folder.codec import decode_model, encode_model
from expunge.training.environment import Environment
from expunge.training.learners import BoostedClassifier, BoostedRegressor, ScikitLearner, as_learner
from expunge.training.learners.boosters import BOOSTERS
from expunge.training.learners.boosting import adapted
from expunge.training.learners.named import named_learner

LIBRARIES = tuple(BOOSTERS)
FEW = {"xgboost": {"n_estimators": 8}, "lightgbm": {"n_estimators": 8}, "catboost": {"iterations": 8, "depth": 4}}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 4))
X[RNG.random(X.shape) < 0.1] = np.nan
Y = (np.nan_to_num(X[:, 0]) + 0.3 * RNG.normal(size=400) > 0).astype(np.int64)
THREE = np.array(["no", "perhaps", "yes"])[Y + (np.nan_to_num(X[:, 1]) > 0)]


def own(library: str, *, is_classifier: bool = True, **options: Any) -> Any:
    """The library's own estimator."""
    booster = BOOSTERS[library]
    return getattr(booster.module, booster.estimators[0 if is_classifier else 1])(**{**FEW[library], **options})


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("labels", [Y, THREE])
def test_answers_are_those_of_the_library(library, labels):
    made = BoostedClassifier(library, random_state=5, **FEW[library]).fit(X, labels)
    quiet = {"catboost": {"logging_level": "Silent", "allow_writing_files": False, "thread_count": 1}}
    loud = quiet.get(library, {"n_jobs": 1} | ({"verbose": -1} if library == "lightgbm" else {}))
    codes = np.unique(labels, return_inverse=True)[1]
    plain = own(library, random_state=5, **loud).fit(X, codes)
    np.testing.assert_allclose(made.predict_proba(X), plain.predict_proba(X), rtol=0, atol=1e-6)
    assert (made.predict(X) == labels).mean() > 0.85
    alone = np.concatenate([made.predict_proba(X[row : row + 1]) for row in range(40)])
    assert np.array_equal(alone, made.predict_proba(X)[:40])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("option", ["poisson", "plain"])
def test_numbers_are_those_of_the_library(library, option):
    target = np.exp(np.nan_to_num(X[:, 0]))
    names = {"xgboost": "count:poisson", "lightgbm": "poisson", "catboost": "Poisson"}
    key = {"catboost": "loss_function"}.get(library, "objective")
    options = {key: names[library]} if option == "poisson" else {}
    made = BoostedRegressor(library, **FEW[library], **options).fit(X, target)
    quiet = {"catboost": {"logging_level": "Silent", "allow_writing_files": False}}.get(library, {})
    seed = {"catboost": "random_seed"}.get(library, "random_state")
    plain = own(library, is_classifier=False, **options, **quiet, **{seed: 0}).fit(X, target)
    np.testing.assert_allclose(made.predict(X), plain.predict(X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_an_update_gives_the_bits_of_learning_from_what_is_left(library, is_weighted):
    options = {"xgboost": {"subsample": 0.7}, "lightgbm": {"subsample": 0.7, "subsample_freq": 1}}.get(library, {})
    weights = np.where(np.arange(400) % 3, 1.0, 2.5) if is_weighted else None
    everybody = np.arange(400)
    left = np.delete(everybody, [7, 80, 333])

    def records(ids: Any) -> Records:
        chosen = None if weights is None else weights[ids]
        return Records.build(
            X[ids], THREE[ids], ids=ids.tolist(), weights=chosen, classes=np.unique(THREE), allow_missing=True
        )

    recipe = Recipe(as_learner(own(library, **options)), 3, IndependentSampler(0.5), RecipeKey.from_seed(1))
    state, _ = update(learn(records(everybody), recipe), [Delete(7), Delete(80), Delete(333)])
    anew = learn(records(left[::-1]), recipe)
    for one, other in zip(state.models, anew.models, strict=True):
        stored = [encode_model(recipe.learner, model) for model in (one, other)]
        assert stored[0] == stored[1]
        again = decode_model(recipe.learner, stored[0].format, stored[0].data)
        assert np.array_equal(again.probabilities(X, 3), one.probabilities(X, 3))
        assert encode_model(recipe.learner, again) == stored[0]
    if is_weighted:
        plain = learn(Records.build(X, THREE, ids=everybody.tolist(), allow_missing=True), recipe)
        assert encode_model(recipe.learner, plain.models[0]) != encode_model(
            recipe.learner, learn(records(everybody), recipe).models[0]
        )


@pytest.mark.parametrize("library", LIBRARIES)
def test_another_seed_gives_another_model(library):
    options = {"xgboost": {"subsample": 0.5}, "lightgbm": {"subsample": 0.5, "subsample_freq": 1}}.get(library, {})
    learner = ScikitLearner(own(library, **options))
    first, again, other = (learner.fit(X, Y, seed).estimator.text for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_folder_needs_no_trust(library, tmp_path):
    """Created, deleted from, opened again in a new object, recomputed; also inside of a pipeline."""
    pipe = make_pipeline(StandardScaler(), own(library))
    with expunge.create(tmp_path / "f", pipe, X, THREE, ids=range(400), n_shards=3, allow_missing=True) as deployment:
        deployment.delete([3, 5])
        before = deployment.predict_proba(X)
    with expunge.open(tmp_path / "f") as deployment:
        assert np.array_equal(deployment.predict_proba(X), before)
        assert library in dict(deployment.origins.here.facts)
    assert not list(tmp_path.glob("catboost_info"))


@pytest.mark.parametrize("library", LIBRARIES)
def test_estimators_of_the_package_take_them(library):
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = expunge.UnlearningClassifier(own(library), n_shards=2, random_state=0)
    model.fit(frame, THREE, sample_weight=np.linspace(0.5, 1, 400)).delete([1, 2])
    assert model.predict_proba(frame).shape == (400, 3)
    assert clone(model).estimator is not model.estimator
    numbers = expunge.UnlearningRegressor(own(library, is_classifier=False), n_shards=2, random_state=0)
    assert numbers.fit(X, np.nan_to_num(X[:, 0])).delete([1]).predict(X).shape == (400,)
    assert isinstance(model.export()[0], BoostedClassifier)
    assert library in dict(Environment.here(as_learner(own(library))).facts)


@pytest.mark.parametrize("library", LIBRARIES)
def test_pickles_searches_and_sparse_rows(library):
    made = adapted(own(library))
    fitted = made.fit(np.nan_to_num(X), THREE)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), fitted.predict_proba(X))
    search = adapted(GridSearchCV(own(library), {"learning_rate": [0.1, 0.3]}, cv=2))
    assert type(search.estimator) is BoostedClassifier
    assert search.fit(X, Y).best_params_["learning_rate"] in (0.1, 0.3)
    for form in (scipy.sparse.csr_matrix, scipy.sparse.csr_array):
        rows = form(np.abs(np.nan_to_num(X)) + 1)
        np.testing.assert_allclose(clone(made).fit(rows, Y).predict_proba(rows).sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("library", LIBRARIES)
def test_shards_with_nothing_to_learn_from(library):
    """Deletions may leave one record, equal rows, equal numbers, or columns of gaps."""
    made, numbers = adapted(own(library)), adapted(own(library, is_classifier=False))
    assert numbers.fit(X[:1], [3.0]).predict(X[:2]).tolist() == [3.0, 3.0]
    assert numbers.fit(X[:9], np.full(9, 2.0)).predict(X[:1]).tolist() == [2.0]
    assert numbers.fit(np.ones((4, 4)), [1.0, 2, 3, 4], [1, 1, 1, 3]).predict(X[:1]).tolist() == [18 / 6]
    flat = made.fit(np.full((4, 4), np.nan), ["a", "b", "b", "b"])
    assert flat.predict_proba(X[:1]).tolist() == [[0.25, 0.75]]
    assert flat.predict(X[:1]).tolist() == ["b"]
    assert pickle.loads(pickle.dumps(flat)).predict(X[:1]).tolist() == ["b"]
    with_gaps = X.copy()
    with_gaps[:, 2] = np.nan
    assert made.fit(with_gaps, Y).predict(X).shape == (400,)


@pytest.mark.parametrize("library", LIBRARIES)
def test_weights_of_classes(library):
    rare = (np.nan_to_num(X[:, 0]) + RNG.normal(size=400) > 1.6).astype(np.int64)
    plain = adapted(own(library)).fit(X, rare)
    balanced = adapted(own(library)).set_params(class_weight="balanced").fit(X, rare)
    by_hand = adapted(own(library)).set_params(class_weight={0: 1.0, 1: 400.0}).fit(X, rare)
    means = [each.predict_proba(X)[:, 1].mean() for each in (plain, balanced, by_hand)]
    assert means[0] < means[1] < means[2]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", LIBRARIES)
def test_they_keep_to_what_scikit_learn_asks_of_estimators(library):
    known = {
        # The library and its options are checked at once, and are no parameters by signature.
        "check_no_attributes_set_in_init",
        "check_do_not_raise_errors_in_init_or_set_params",
    }
    if library != "lightgbm":  # they choose their borders from the rows as they are, and not from weighted ones
        known |= {f"check_sample_weight_equivalence_on_{form}_data" for form in ("dense", "sparse")}
    for made in (BoostedClassifier(library, **FEW[library]), BoostedRegressor(library, **FEW[library])):
        failed = [each for each in check_estimator(made, on_fail=None) if each["status"] == "failed"]
        assert {each["check_name"] for each in failed} <= known, failed


REFUSED = {
    "a file": (lambda: own("lightgbm", forcedsplits_filename="x"), "LGBMClassifier: the option 'forcedsp"),
    "a cache": (lambda: own("catboost", snapshot_file="x"), "CatBoostClassifier: the option 'snapshot_file'"),
    "a GPU": (lambda: own("xgboost", device="cuda"), "XGBClassifier: the option 'device' is not supported"),
    "native categories": (lambda: own("catboost", cat_features=[0]), "'cat_features' is not supported"),
    "held-out rows": (lambda: own("xgboost", early_stopping_rounds=3), "'early_stopping_rounds' is not supported"),
    "a function": (lambda: own("xgboost", objective=max), "'objective' must be plain values"),
    "another objective": (lambda: own("xgboost", objective="multi:softmax"), "objective must be one of binary"),
    "a ranker": (lambda: BOOSTERS["lightgbm"].module.LGBMRanker(), "LGBMRanker of lightgbm is not supported: use LGBM"),
    "another booster": (lambda: own("xgboost", booster="dart"), "'booster' is not supported"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_one_line(name):
    make, message = REFUSED[name]
    with pytest.raises(ParameterError, match=re.escape(message)) as caught:
        as_learner(make())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "option", "value", "message"),
    [
        ("xgboost", "max_depth", "deep", "learner 'xgboost': "),
        ("xgboost", "eta", 0.1, "learner 'xgboost' has no option 'eta': it has "),
        ("xgboost", "grow_policy", "x", "learner 'xgboost': Invalid Input: 'x', valid values are: {'depthwise', 'loss"),
        ("lightgbm", "num_leaves", 1, "learner 'lightgbm': "),
        ("catboost", "bootstrap_type", "x", "learner 'catboost': "),
        ("catboost", "depth", 90, "learner 'catboost': "),
    ],
)
def test_bad_options_of_named_learners_are_one_line(name, option, value, message):
    with pytest.raises(ParameterError, match=re.escape(message)) as caught:
        named_learner(name, **{option: value})
    assert "\n" not in str(caught.value)


def test_texts_in_a_frame_are_one_line():
    frame = pd.DataFrame({"a": [1.0, 2.0], "plan": ["x", "y"]})
    with pytest.raises(ParameterError, match="column 'plan' holds no numbers: put an encoder in front"):
        BoostedClassifier("lightgbm").fit(frame, [0, 1])


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_missing_library_names_the_extra(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    with pytest.raises(
        MissingExtraError,
        match=re.escape(f"this needs {library}, which is not installed: pip install 'expunge[boosting]'"),
    ):
        named_learner(library, learning_rate=0.2)


# What a stranger may have written into a folder.


def restored(fitted: Any, text: str, **other: Any) -> Any:
    state = {**fitted.__getstate__(), "model_": np.frombuffer(text.encode(), dtype=np.uint8), **other}
    made = type(fitted).__new__(type(fitted))
    made.__setstate__(state)
    return made


def fitted(library: str, labels: Any = Y) -> Any:
    return BoostedClassifier(library, **FEW[library]).fit(X, labels)


HOSTILE = {
    "xgboost": [
        (r'"left_children":\[1,', '"left_children":[0,'),
        (r'"left_children":\[1,', '"left_children":[99999,'),
        (r'"split_indices":\[[0-9]', '"split_indices":[4'),
        (r'"split_indices":\[', '"split_indices":[0,'),
        (r'"num_nodes":"', '"num_nodes":"9'),
        (r'"num_feature":"4"', '"num_feature":"400"'),
        (r'"tree_info":\[0', '"tree_info":[7'),
        (r'"id":0', '"id":3'),
        (r'"name":"gbtree"', '"name":"dart"'),
        (r'"binary:logistic"', '"multi:softprob"'),
        (r'"cats":\{"enc":\[\]', '"cats":{"enc":[1]'),
        (r'"split_type":\[0', '"split_type":[1'),
        (r'"base_score":"[^"]*"', '"base_score":"[1,2,3]"'),
        (r'"attributes":\{\}', '"attributes":{"best_iteration":"99"}'),
        (r'^\{', '{"learner":{},'),
        (r'"split_conditions":\[', '"split_conditions":[NaN,'),
    ],
    "lightgbm": [
        (r"left_child=1", "left_child=77"),
        (r"left_child=(-?[0-9]+) ", "left_child=-90 "),
        (r"left_child=(-?[0-9]+) ", "left_child=0 "),
        (r"split_feature=[0-9]+", "split_feature=44"),
        (r"num_leaves=[0-9]+", "num_leaves=3000"),
        (r"decision_type=[0-9]+", "decision_type=1"),
        (r"num_cat=0", "num_cat=1"),
        (r"is_linear=0", "is_linear=1"),
        (r"leaf_value=", "leaf_value=nan "),
        (r"max_feature_idx=3", "max_feature_idx=30"),
        (r"num_class=1", "num_class=5"),
        (r"num_tree_per_iteration=1", "num_tree_per_iteration=9"),
        (r"objective=binary", "objective=lambdarank"),
        (r"Tree=1", "Tree=7"),
        (r"shrinkage=1\n", "shrinkage=1\nleaf_const=3\n"),
        (r"feature_infos=\[", "feature_infos=0:1:2 ["),
    ],
    "catboost": [
        (r'"float_feature_index":[0-9]', '"float_feature_index":8'),
        (r'"split_index":[0-9]+', '"split_index":900000'),
        (r'"leaf_values":\[', '"leaf_values":[1,'),
        (r'"split_type":"FloatFeature"', '"split_type":"OneHotFeature"'),
        (r'"flat_feature_index":0', '"flat_feature_index":1000000'),
        (r'"border":-?[0-9.]+', '"border":77.5'),
        (r'"scale_and_bias":\[1,\[0\]\]', '"scale_and_bias":[1,[0,0,0]]'),
        (r'"has_nans":true', '"has_nans":7'),
        (r'"nan_value_treatment":"[A-Za-z]+"', '"nan_value_treatment":"Sideways"'),
        (r'"loss":"Logloss"', '"loss":"MultiClass"'),
        (r'"oblivious_trees"', '"trees"'),
        (r'"borders":\[', '"borders":[Infinity,'),
    ],
}  # fmt: skip


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_changed_text_never_reaches_compiled_code(library):
    made = fitted(library)
    assert np.array_equal(restored(made, made.text).predict_proba(X), made.predict_proba(X))
    for pattern, odd in HOSTILE[library]:
        changed, count = re.subn(pattern, odd, made.text, count=1)
        assert count == 1, pattern
        with pytest.raises(ModelFormatError, match="the stored model is malformed"):
            restored(made, changed)
    for odd in ("", "{}", "[]", "null", "tree", made.text[:-40], made.text * 2):
        with pytest.raises(ModelFormatError, match="the stored model is malformed"):
            restored(made, odd)


@pytest.mark.parametrize("library", LIBRARIES)
def test_parts_that_do_not_fit_together(library):
    made = fitted(library, THREE)
    for other in (
        {"classes_": np.arange(2)},
        {"n_features_in_": 3},
        {"predictor_": print},
        {"library": "os"},
        {"options": {"train_dir": "/"}},
        {"options": 3},
        {"model_": None, "constant_": np.zeros(9)},
    ):
        with pytest.raises((ModelFormatError, ParameterError)):
            restored(made, made.text, **other)


@pytest.mark.parametrize("library", LIBRARIES)
def test_random_changes_are_refused_or_harmless(library):
    """Numbers and words of the text exchanged: the process that loads and asks the model lives on."""
    made, way = fitted(library, THREE), random.Random(3)
    tokens = re.findall(r"-?[0-9.]+(?:[eE]-?[0-9]+)?|[A-Za-z_]+|\s|.", made.text)
    numbers = [place for place, token in enumerate(tokens) if re.match(r"-?[0-9]", token)]
    answers = os.fork()
    if answers == 0:
        signal.alarm(120)
        try:
            for _ in range(150):
                changed = list(tokens)
                for place in way.sample(numbers, way.randrange(1, 3)):
                    changed[place] = way.choice(
                        ["0", "-1", "1", "2", "99", "2147483647", "-2147483648", "1e308", "0.5", "x"]
                    )
                try:
                    found = restored(made, "".join(changed)).predict_proba(X[:20])
                    assert found.shape == (20, 3)
                except ModelFormatError:
                    continue
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(answers, 0)[1]) == 0
