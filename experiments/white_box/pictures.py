"""The images, and which half of the test images chooses weights and which one measures them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from expunge.datasets import Images, load_cifar10, load_fashion_mnist, load_mnist

_LOADERS: dict[str, Callable[[], Images]] = {
    "mnist": load_mnist,
    "fashion-mnist": load_fashion_mnist,
    "cifar-10": load_cifar10,
}


@dataclass(frozen=True)
class Pictures:
    """Bytes, (number, side, side, channels), and labels."""

    X: NDArray[np.uint8]
    y: NDArray[np.int32]
    X_validation: NDArray[np.uint8]
    y_validation: NDArray[np.int32]
    X_test: NDArray[np.uint8]
    y_test: NDArray[np.int32]

    @property
    def side(self) -> int:
        """Pixels a side."""
        return int(self.X.shape[1])

    @property
    def channels(self) -> int:
        """Colours."""
        return int(self.X.shape[3])


def load_pictures(dataset: str, *, split: Literal["released", "fresh"] = "released", seed: int = 0) -> Pictures:
    """The dataset with its 10,000 test images in two halves.

    `split="released"` is the shuffle of the paper's released code, which the table's accuracies belong to (two random
    halves of MNIST differ by more than the table's intervals); `"fresh"` draws another from `seed`.
    """
    images = _LOADERS[dataset]()
    order = released_order() if split == "released" else np.random.default_rng(seed).permutation(10_000)
    validation, test = order[:5000], order[5000:]
    shaped = [part.reshape(*part.shape[:3], -1) for part in (images.X, images.X_test)]
    codes = [part.astype(np.int32) for part in (images.y, images.y_test)]
    return Pictures(shaped[0], codes[0], shaped[1][validation], codes[1][validation], shaped[1][test], codes[1][test])


def released_order() -> NDArray[Any]:
    """JAX's permutation of 10,000 from the first half of PRNGKey(0), under the older threefry."""
    import jax

    with jax.threefry_partitionable(False):
        key = jax.random.split(jax.random.PRNGKey(0))[0]
        return np.asarray(jax.random.permutation(key, np.arange(10_000)))


def shrink(pictures: Pictures, *, train: int, test: int) -> Pictures:
    """The first few images only, for trying things out."""
    return replace(
        pictures,
        X=pictures.X[:train],
        y=pictures.y[:train],
        X_validation=pictures.X_validation[:test],
        y_validation=pictures.y_validation[:test],
        X_test=pictures.X_test[:test],
        y_test=pictures.y_test[:test],
    )
