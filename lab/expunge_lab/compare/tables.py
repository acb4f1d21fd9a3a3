"""The datasets of the comparison: rows to train on, rows to ask about, and rows to add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits, make_classification

from expunge_lab.datasets import load_fashion_mnist, load_mnist

_ADDED = 100  # rows to add
_ASKED = 12_400  # rows to ask about, at most


@dataclass(frozen=True, eq=False)
class Table:
    """A dataset, divided.

    Parameters
    ----------
    X, y
        Rows to train on.
    X_asked, y_asked
        Rows to ask about.
    X_more, y_more
        Rows to add.
    """

    X: NDArray[Any]
    y: NDArray[np.int64]
    X_asked: NDArray[Any]
    y_asked: NDArray[np.int64]
    X_more: NDArray[Any]
    y_more: NDArray[np.int64]


@dataclass(frozen=True)
class Dataset:
    """How a dataset is made, and what is compared on it.

    Parameters
    ----------
    title, about
        Its name on the page, and a sentence about it.
    make
        Makes it; a quick one is tiny.
    learners
        The short names of the learners of shards, or "network" for the paper's.
    batches
        Sizes of batches of deletions, besides 100 and 1%.
    """

    title: str
    about: str
    make: Callable[[bool], Table]
    learners: tuple[str, ...]
    batches: tuple[int, ...] = ()


def divide(X: NDArray[Any], y: NDArray[Any], size: int) -> Table:
    """In an order drawn once: so many to train on, some to add, and the others to ask about."""
    order = np.random.default_rng(0).permutation(len(y))
    parts = np.split(order, [size, size + min(_ADDED, (len(y) - size) // 2)])
    train, more, asked = parts[0], parts[1], parts[2][:_ASKED]
    codes = np.unique(y, return_inverse=True)[1].astype(np.int64)
    return Table(X[train], codes[train], X[asked], codes[asked], X[more], codes[more])


def _digits(quick: bool) -> Table:
    X, y = load_digits(return_X_y=True)
    return divide(X, y, 300 if quick else 1200)


def _classes(size: int, **options: Any) -> Callable[[bool], Table]:
    def make(quick: bool) -> Table:
        number = 1_000 if quick else size
        X, y = make_classification(number + (200 if quick else 12_500), 20, random_state=0, **options)
        return divide(X, y, number)

    return make


def cover(quick: bool) -> Table:
    """Seven classes with the shares of Covertype's; ten numbers, and 4 and 40 columns of which one is 1.

    A class has three centres of numbers, and soils that go with each centre.
    """
    rng, size = np.random.default_rng(1), 300 if quick else 20_000
    shares = np.array([0.365, 0.488, 0.062, 0.005, 0.016, 0.030, 0.034])
    y = rng.choice(7, size + (200 if quick else 8_000), p=shares / shares.sum())
    place = 3 * y + rng.integers(0, 3, len(y))
    numbers = 1.5 * rng.normal(size=(21, 10))[place] + 1.6 * rng.normal(size=(len(y), 10))
    parts = [numbers]
    for width, spread in ((4, 1.0), (40, 2.0)):
        scores = spread * rng.normal(size=(21, width))[place] + rng.gumbel(size=(len(y), width))
        parts.append(np.eye(width)[scores.argmax(axis=1)])
    return divide(np.concatenate(parts, axis=1), y, size)


def purchase(quick: bool) -> Table:
    """600 columns of 0 and 1, two classes: the shape of the data in SISA's experiment, drawn at random."""
    rng, size = np.random.default_rng(2), 300 if quick else 250_000
    number = size + (200 if quick else 12_500)
    taste = rng.normal(size=(12, 600)) - 1.5
    customers = rng.normal(size=(number, 12))
    X = (customers @ taste / 3 + rng.logistic(size=(number, 600)) > 1.0).astype(np.uint8)
    score = np.tanh(customers[:, 0] * customers[:, 1]) + customers[:, 2] + 0.5 * rng.logistic(size=number)
    return divide(X, score > 0, size)


def _pictures(load: Callable[[], Any]) -> Callable[[bool], Table]:
    def make(quick: bool) -> Table:
        found = load()
        size = 300 if quick else len(found.y)
        X, y = found.X[:size].reshape(size, -1), found.y[:size]
        asked, codes = found.X_test.reshape(len(found.X_test), -1), found.y_test
        more = min(_ADDED, len(codes) // 2)
        end = 200 if quick else len(codes)
        return Table(X, y, asked[more:end], codes[more:end], asked[:more], codes[:more])

    return make


DATASETS: dict[str, Dataset] = {
    "digits": Dataset(
        "Digits", "1,200 handwritten digits of scikit-learn, 8 × 8, 10 classes.", _digits, ("logistic", "boosting")
    ),
    "table": Dataset(
        "A table of 50,000",
        "`make_classification`: 50,000 × 20, two classes, 5 informative columns.",
        _classes(50_000, n_informative=5),
        ("logistic", "boosting"),
    ),
    "rare": Dataset(
        "A rare class",
        "`make_classification`: 50,000 × 20, one record in fifty of the second class, 5 informative columns.",
        _classes(50_000, n_informative=5, weights=[0.98], flip_y=0.0),
        ("logistic", "tree", "boosting"),
    ),
    "cover": Dataset(
        "Covertype-like",
        "20,000 × 54, seven classes with the shares of Covertype's (the rarest 0.5%), numbers and indicators; drawn, "
        "because Covertype itself has to be downloaded.",
        cover,
        ("logistic", "boosting"),
    ),
    "million": Dataset(
        "A million rows",
        "`make_classification`: 1,000,000 × 20, two classes, 10 informative columns.",
        _classes(1_000_000, n_informative=10),
        ("logistic",),
    ),
    "purchase": Dataset(
        "Purchase-like",
        "250,000 × 600 columns of 0 and 1, two classes, and a network with a hidden layer of 128: the shape of SISA's "
        "experiment on Purchase, on data drawn at random.",
        purchase,
        ("network",),
        (8,),
    ),
    "mnist": Dataset("MNIST", "60,000 pictures, the paper's network.", _pictures(load_mnist), ("network",), (18,)),
    "fashion-mnist": Dataset(
        "Fashion-MNIST", "60,000 pictures, the paper's network.", _pictures(load_fashion_mnist), ("network",), (18,)
    ),
}
