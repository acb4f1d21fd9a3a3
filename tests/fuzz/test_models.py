"""Stored models whose parts were changed, with a right checksum: a model, or one line; and never a crash.

The models are loaded and used in a process of their own: compiled code that is sent outside of its arrays would end it.
"""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, SplineTransformer, StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeClassifier, ExtraTreeRegressor

from expunge.core.errors import ModelFormatError
from expunge.folder.codec import container, decode, encode

COUNT, BATCH = 600, 50
X = np.random.default_rng(0).normal(size=(60, 4)).round(1)
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
MODELS = {
    "tree": DecisionTreeClassifier(),
    "regression tree": ExtraTreeRegressor(),
    "forest": RandomForestClassifier(3),
    "isolation": IsolationForest(n_estimators=3),
    "boosting": GradientBoostingClassifier(n_estimators=2),
    "boosting by histograms": HistGradientBoostingClassifier(max_iter=2, categorical_features=[3]),
    "machine": SVC(probability=False),
    "sparse machine": SVC(kernel="linear"),
    "machine for numbers": SVR(),
    "brute neighbours": KNeighborsClassifier(algorithm="brute"),
    "neighbours": KNeighborsClassifier(algorithm="kd_tree"),
    "clusters": KMeans(3, n_init=1),
    "network": MLPClassifier((5,), max_iter=5),
    "spline": make_pipeline(SplineTransformer(), LogisticRegression()),
    "categories": make_pipeline(OneHotEncoder(handle_unknown="ignore"), SGDClassifier()),
    "bayes": make_pipeline(StandardScaler(), GaussianNB()),
}
ODD = (None, True, -1, 0, 1, 5, 2**31, 2**63, -(2**63), 1e308, float("nan"), "", "x", "object", [], {}, ["list"])


@pytest.fixture(scope="module")
def stored() -> dict[str, tuple[Any, bytes]]:
    """The models, and what they are asked."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model in MODELS.items():
            table = scipy.sparse.csr_matrix(X) if name.startswith("sparse") else np.abs(X) if "hist" in name else X
            found[name] = table, encode(clone(model).fit(table, Y)).data
    return found


def changed(data: bytes, rng: np.random.Generator) -> bytes:
    """Change a few nodes of the tree or numbers of the arrays, and write the right checksum."""
    tree, arrays = container.unpack(data)
    for _ in range(rng.integers(1, 4)):
        if arrays and rng.random() < 0.6:
            place = int(rng.integers(len(arrays)))
            arrays[place] = changed_array(arrays[place], rng, arrays)
        else:
            change_node(tree, rng)
    return container.pack(tree, [np.ascontiguousarray(array) for array in arrays])


def changed_array(array: Any, rng: np.random.Generator, arrays: list[Any]) -> Any:
    match rng.integers(6):
        case 0 if array.size:
            flat = array.ravel().copy()
            limits = np.iinfo(flat.dtype) if flat.dtype.kind in "iu" else None
            odd = (limits.min, limits.max, 0, 1, 100) if limits else (0, 1, np.nan, np.inf, -1e308)
            with np.errstate(all="ignore"):
                flat[rng.integers(flat.size)] = odd[rng.integers(len(odd))]
            return flat.reshape(array.shape)
        case 1 if array.size:
            raw = array.copy().view(np.uint8).ravel() if array.ndim else np.atleast_1d(array).view(np.uint8).copy()
            raw[rng.integers(raw.size)] = rng.integers(256)
            return raw.view(array.dtype).reshape(array.shape)
        case 2:
            return array[: rng.integers(len(array) + 1)] if array.ndim else array
        case 3:
            return np.concatenate([array, array]) if array.ndim else array
        case 4:
            return arrays[rng.integers(len(arrays))]
        case _:
            return array.reshape(-1) if array.ndim > 1 else array[np.newaxis]


def change_node(tree: Any, rng: np.random.Generator) -> None:
    places, waiting = [], [tree["value"]]
    while waiting:
        here = waiting.pop()
        for key in here if isinstance(here, dict) else range(len(here)) if isinstance(here, list) else ():
            places.append((here, key))
            waiting.append(here[key])
    here, key = places[rng.integers(len(places))]
    there, other = places[rng.integers(len(places))]
    match rng.integers(4):
        case 0:
            here[key] = ODD[rng.integers(len(ODD))]
        case 1:
            here[key] = json.loads(json.dumps(there[other]))
        case 2 if isinstance(here, dict):
            del here[key]
        case _ if isinstance(here, dict) and isinstance(there, dict):
            here[other] = json.loads(json.dumps(there[other]))
        case _:
            here[key] = int(rng.integers(-2, 100))


def use(table: Any, data: bytes) -> str:
    try:
        model = decode("arrays", data)
    except ModelFormatError as error:
        return "refused" if "\n" not in str(error) else "refused in several lines"
    try:
        model.predict(table)
        getattr(model, "predict_proba", model.predict)(table)
    except Exception:  # a model that fails votes for nothing
        return "failed"
    return "answered"


def in_a_process(act: Any) -> tuple[dict[str, int], int]:
    """Do it in a child; what it found, and the signal that ended it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(240)
        try:
            os.write(writing, json.dumps(act()).encode())
            os._exit(0)
        except BaseException as error:
            os.write(writing, json.dumps({"error": repr(error)}).encode())
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        told = file.read()
    _, status = os.waitpid(child, 0)
    return json.loads(told or b"{}"), os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def test_changed_models_do_not_crash(stored: dict[str, tuple[Any, bytes]], draws: Any) -> None:
    names, met = list(stored), Counter[str]()
    batch: list[tuple[str, str, bytes]] = []
    for seed, rng in draws(COUNT):
        name = names[rng.integers(len(names))]
        batch.append((seed, name, changed(stored[name][1], rng)))
        if len(batch) == BATCH:
            met += Counter(_used(stored, batch))
            batch = []
    assert met["refused in several lines"] == 0
    assert met["refused"] > 0.2 * met.total()
    assert met["answered"] > 0
    print(dict(met))


def _used(stored: dict[str, tuple[Any, bytes]], batch: list[tuple[str, str, bytes]]) -> dict[str, int]:
    """What came of a batch. If its process ended, each is tried alone, to say which one it was."""

    def act() -> dict[str, int]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return dict(Counter(use(stored[name][0], data) for _, name, data in batch))

    found, ended_by = in_a_process(act)
    assert "error" not in found, (batch[0][:2], found)
    if ended_by:
        assert len(batch) > 1, f"{batch[0][1]}, {batch[0][0]}: signal {ended_by}"
        for one in batch:
            _used(stored, [one])
        pytest.fail(f"signal {ended_by}, after one of {batch[0][:2]} to {batch[-1][:2]}")
    return found
