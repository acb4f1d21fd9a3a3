"""What the tests of the codec share: a company's own module, and a way to write hostile files with a right checksum."""

from __future__ import annotations

import numpy as np
import pytest

from expunge.folder.codec import container

COMPANY = """
import os
import subprocess
from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin


def double(X):
    return 2 * np.asarray(X)


class Doubler(TransformerMixin, BaseEstimator):
    def __init__(self, factor=2):
        self.factor = factor

    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X):
        return X * self.factor


@dataclass
class Plain:
    codes: np.ndarray

    def predict(self, X):
        return self.codes[: len(X)]


@dataclass
class Arrays(Plain):
    def to_arrays(self):
        return {"codes": self.codes, "note": "from arrays"}

    @classmethod
    def from_arrays(cls, parts):
        assert parts["note"] == "from arrays"
        return cls(parts["codes"])


class Unpicklable(Plain):
    def __reduce__(self):
        raise TypeError("no")


def make_network():
    from torch import nn

    return nn.Linear(3, 2)


def ran():
    raise SystemExit("the tests' own code ran")
"""


@pytest.fixture
def company(tmp_path, monkeypatch):
    """A module of the operator's own, importable here and in subprocesses that get `tmp_path` as their path."""
    (tmp_path / "company_models.py").write_text(COMPANY)
    monkeypatch.syspath_prepend(str(tmp_path))
    import importlib

    module = importlib.import_module("company_models")
    yield module
    import sys

    sys.modules.pop("company_models", None)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of the operator's own, with a module two floors down."""
    import importlib
    import sys

    inner = tmp_path / "company_package" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    (inner / "deep.py").write_text(COMPANY)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("company_package.inner.deep")
    yield sys.modules["company_package"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "company_package"]:
        del sys.modules[name]


@pytest.fixture
def forge():
    """A file whose checksum is right, with the given node as its value."""

    def write(node, arrays=(), **more):
        tree = {"version": 1, "value": node, **more}
        return container.pack(tree, [np.ascontiguousarray(array) for array in arrays])

    return write
