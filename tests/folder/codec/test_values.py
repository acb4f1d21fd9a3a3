"""Everything besides scikit-learn: expunge's own records, arrays, containers, and what is shared stays shared."""

from __future__ import annotations

import json
import subprocess
from collections import OrderedDict, defaultdict

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expunge.core.errors import ModelFormatError
from expunge.folder.codec import decode, encode
from expunge.privacy.mechanisms import MECHANISM_NAMES, Majority, mechanism
from expunge.serving.publishing import Calibration, DirectFront, RouterFront, StudentFront, StudentRound
from expunge.training.fallback import GaussianNaiveBayes, MultinomialNaiveBayes, NearestNeighbours, RidgeFallback
from expunge.training.learners import (
    Abstainer,
    ConstantModel,
    LookupTableLearner,
    NearestTableLearner,
    ScikitLearner,
    SlicedScikitLearner,
)
from expunge.training.learners.named import learner_names, named_learner
from expunge.training.learners.slices import SlicedShard, fit_slices

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
Y = (X[:, 0] > 0).astype(np.int64)
FRESH = RNG.normal(size=(30, 3))


def round_trip(value):
    stored = encode(value)
    assert stored.format == "arrays"
    again = decode(stored.format, stored.data)
    assert encode(again).data == stored.data == encode(value).data
    return again


def same(a, b):
    """Equal in type, shape, order and bits."""
    if isinstance(a, np.ndarray):
        return (
            type(a) is type(b)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.flags.f_contiguous == b.flags.f_contiguous
            and (a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes())
        )
    return type(a) is type(b) and a == b


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
        np.array(3, dtype=np.uint64),
        np.empty((0, 5), dtype=np.float32),
        np.array([True, False]),
        np.array([np.nan, -0.0, np.inf, 5e-324]),
        np.array(["ä", "long text"]),
        np.array([b"x", b"yz"]),
        np.array([1 + 2j]),
        np.array([1, 2], dtype=">i4"),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.array([("a", 1.5)], dtype=[("name", "<U3"), ("value", "<f8")]),
        np.array([["x", None], [1, 2.5]], dtype=object),
        np.empty((0,), dtype=object),
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}",
)
def test_arrays(array):
    again = round_trip(array)
    assert same(array, again)
    assert again.flags.writeable
    assert again.flags.aligned


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, -(2**80), 0.1, "text \ud800 \x00", b"\x00\xff", (1, [2, {"a": (None,)}]), {1: "a", "1": "b"},
        {(1, 2): {3.5: None}}, {b"ab": 1, b"cd": 2}, {b"a": 1, b"bc": 2}, {3, 1, 2}, frozenset({"b", "a"}),
        slice(1, None, 2), range(2, 9, 3), np.float64(0.1), np.int32(4), np.str_("x"), np.bool_(True),
        np.dtype("f4"), np.dtype(object), np.float32, int, np.log1p,
        {"word": np.int64(3), "other": np.int64(1)}, {}, {"only": np.int64(3)},
        OrderedDict({"b": 1, "a": [2]}), defaultdict(None, {"a": 1}), defaultdict(OrderedDict, {"b": OrderedDict()}),
    ],
    ids=lambda value: "set" if isinstance(value, set | frozenset) else ascii(value),  # of a set, the order is chance
)  # fmt: skip
def test_plain_values(value):
    again = round_trip(value)
    assert same(value, again)
    if isinstance(value, dict):
        assert list(map(type, again.values())) == list(map(type, value.values()))


def test_a_mapping_with_a_default_goes_on_making_it():
    again = round_trip(defaultdict(list, {"a": [1]}))
    assert again["b"] == []
    with pytest.raises(ModelFormatError, match="a defaultdict whose factory is"):
        encode(defaultdict(subprocess.Popen))
    with pytest.raises(KeyError):
        round_trip(defaultdict(None))["b"]


def test_infinities_and_not_a_number():
    again = round_trip((float("inf"), -float("inf"), float("nan"), np.float32("nan")))
    assert again[:2] == (float("inf"), -float("inf"))
    assert np.isnan(again[2])
    assert np.isnan(again[3])


def test_generators_go_on_where_they_were():
    for generator in (np.random.RandomState(3), np.random.default_rng(3), np.random.Generator(np.random.MT19937(1))):
        generator.normal(size=3)
        again = round_trip(generator)
        assert np.array_equal(generator.normal(size=5), again.normal(size=5))


def test_what_is_shared_stays_shared():
    array, model = np.arange(3.0), LogisticRegression()
    first, second, (third, fourth), other = round_trip([array, array, (model, model), array.copy()])
    assert first is second
    assert third is fourth
    assert other is not first


def test_gaps_of_structured_arrays_are_not_stored():
    dtype = np.dtype({"names": ["a", "b"], "formats": ["u1", "f8"], "offsets": [0, 8], "itemsize": 16})
    raw = np.frombuffer(b"\x01SECRET!" + np.float64(2).tobytes(), dtype=dtype)
    stored = encode(raw)
    assert b"SECRET" not in stored.data
    assert decode(stored.format, stored.data).tolist() == raw.tolist()


SHARD_MODELS = {
    "empty": Abstainer(),
    "constant": ConstantModel(1),
    "lookup": LookupTableLearner().fit(X, Y, 0),
    "nearest": NearestTableLearner(0.5).fit(X, Y, 0),
    "linear": ScikitLearner(LogisticRegression()).fit(X, Y, 0),
    "texts": ScikitLearner(LogisticRegression()).for_classes(np.array(["n", "y"], dtype=object)).fit(X, Y, 0),
    "neighbours": ScikitLearner(KNeighborsClassifier()).fit(X, Y, 0),
}


@pytest.mark.parametrize("name", SHARD_MODELS)
def test_shard_models(name):
    model = SHARD_MODELS[name]
    again = round_trip(model)
    assert type(again) is type(model)
    rows = np.concatenate([X[::3], FRESH])
    assert np.array_equal(again.predict(rows), model.predict(rows))


@pytest.mark.parametrize("mode", ["partial_fit", "warm_start"])
def test_sliced_models_resume_after_a_round_trip(mode):
    learner = SlicedScikitLearner(SGDClassifier(), 4, mode=mode).for_classes(np.arange(2))
    slices = np.arange(len(X)) % 4
    model = fit_slices(learner, SlicedShard(0, X, Y, None, slices, (1, 2, 3, 4)))
    again = round_trip(model)
    assert again.final.estimator is again.checkpoints[-1]
    resumed = [
        fit_slices(learner, SlicedShard(0, X, Y, None, slices, (1, 2, 7, 8), first=2, checkpoints=m.checkpoints))
        for m in (model, again)
    ]
    assert encode(resumed[0]).data == encode(resumed[1]).data


LEARNERS = [
    ScikitLearner(make_pipeline(StandardScaler(), LogisticRegression())),
    ScikitLearner(LogisticRegression()).for_classes(np.array(["a", "b"])),
    SlicedScikitLearner(SGDClassifier(), 3).for_classes(np.arange(2)),
    LookupTableLearner(),
    NearestTableLearner(0.25),
    *(named_learner(name, columns={"a": "number", "b": "category"}) for name in learner_names()),
    *(named_learner(name) for name in learner_names()),
]


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: repr(learner)[:60])
def test_learners(learner):
    assert repr(round_trip(learner)) == repr(learner)


def test_a_named_learner_trains_alike_after_a_round_trip():
    learner = named_learner("forest")
    assert encode(round_trip(learner).fit(X, Y, 5)).data == encode(learner.fit(X, Y, 5)).data


FRONTS = [
    DirectFront(),
    RouterFront(fallback=RidgeFallback(penalty=2.0), num_queries=7),
    RouterFront(fallback=NearestNeighbours(), threshold=0.5),
    GaussianNaiveBayes(),
    MultinomialNaiveBayes(),
    Calibration(-np.inf, 1.0, np.nan),
    Majority(),
    *(mechanism(name, epsilon=0.5) for name in MECHANISM_NAMES if name not in ("majority", "confident")),
]


@pytest.mark.parametrize("front", FRONTS, ids=lambda front: repr(front)[:60])
def test_fronts_fallbacks_and_mechanisms(front):
    assert repr(round_trip(front)) == repr(front)


def test_students():
    front = round_trip(StudentFront(X, named_learner("logistic"), pool_ids=("a", 2)))
    assert np.array_equal(front.pool, X)
    assert front.pool_ids == ("a", 2)
    model = named_learner("logistic").fit(X, Y, 0)
    taught = round_trip(StudentRound(model, np.arange(4), Y[:4], was_trained=True))
    assert np.array_equal(taught.answer(FRESH), model.predict(FRESH))


def test_a_stored_model_is_a_safetensors_file():
    model = ScikitLearner(LogisticRegression()).fit(X, Y, 0)
    tensors = safetensors.numpy.load(encode(model).data)
    assert any(np.array_equal(tensor, model.estimator.coef_) for tensor in tensors.values())
    tree = json.loads(tensors["tree"].tobytes())
    assert tree["scikit-learn"].startswith("1.")


def test_nothing_but_the_model():
    """A linear model's file holds none of the rows, no path and no host."""
    import getpass
    import os
    import socket

    rows = X.copy()
    data = encode(named_learner("logistic").fit(rows, Y, 0)).data
    for row in rows:
        assert all(value.tobytes() not in data and repr(float(value)).encode() not in data for value in row)
    for word in (os.getcwd(), os.path.expanduser("~"), socket.gethostname(), f"/{getpass.getuser()}/"):
        assert word.encode() not in data


def test_data_frames():
    frame = pd.DataFrame(
        {
            "number": [1.5, 2.5, -1.0],
            "whole": np.array([1, 2, 3], dtype=np.int16),
            "flag": [True, False, True],
            "text": ["a", None, "b"],
            "mixed": np.array([1, None, float("nan")], dtype=object),
            "category": pd.Categorical(["u", "v", "u"], categories=["v", "u", "w"], ordered=True),
            "nullable": pd.array([1, None, 3], dtype="Int64"),
            "when": pd.to_datetime(["2020-01-01", "2021-01-01", None]),
        },
        index=[5, 6, 7],
    )
    again = round_trip(StudentFront(frame, named_learner("logistic"))).pool
    pd.testing.assert_frame_equal(again, frame.reset_index(drop=True))
    assert round_trip(frame.head(0)).dtypes.equals(frame.dtypes)
    with pytest.raises(ModelFormatError, match="column 'when' cannot be stored: columns of type datetime64"):
        encode(pd.DataFrame({"when": pd.to_datetime(["2020-01-01"]).tz_localize("UTC")}))
