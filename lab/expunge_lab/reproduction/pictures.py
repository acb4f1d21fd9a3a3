"""Images of an experiment: what is trained on, the validation half of the test images and the held-out half.

Which half is held out matters (on MNIST two random halves differ by more than the table's intervals), so the table uses
the split of the paper's released code: JAX's permutation of 0..9,999 from the first half of `PRNGKey(0)`, under the
older threefry; validation first. The first k · (points per shard) training images are used, in the published order; a
trial's partition is a random permutation of them. The released code draws its images, once for all trials, from the
whole training set: that order is there to be asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from expunge.audit import load_digits
from expunge_lab.datasets import Images, cifar, data_folder, load_fashion_mnist, load_mnist
from expunge_lab.reproduction.rows import Experiment

_CIFAR_BATCH = 10_000
_NUM_DIGITS_TEST = 500

Bytes = NDArray[np.uint8]
Codes = NDArray[np.int32]
Order = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Part:
    """Images, (number, side, side, colours), and their classes."""

    X: Bytes
    y: Codes


@dataclass(frozen=True, eq=False)
class Pictures:
    """All that a trial sees: images to train on, the validation half and the held-out half of the test images."""

    X: Bytes
    y: Codes
    X_validation: Bytes
    y_validation: Codes
    X_test: Bytes
    y_test: Codes

    @property
    def side(self) -> int:
        """Pixels a side."""
        return int(self.X.shape[1])

    @property
    def channels(self) -> int:
        """Colours."""
        return int(self.X.shape[3])


def load_pictures(
    experiment: Experiment, *, has_fresh_split: bool = False, has_released_order: bool = False
) -> Pictures:
    """From the user's folder of data (`expunge_lab.datasets`); digits come with the package's base install.

    With `has_released_order` the training images are those of the released code, in its order: cut into shards from
    the front they are its one partition. Digits have no such order.
    """
    is_reordered = has_released_order and experiment.dataset != "digits"
    train, test = _read(experiment, is_whole=is_reordered)
    order = fresh_split(experiment.name, len(test.y)) if has_fresh_split else _usual_split(len(test.y))
    half, used = len(order) // 2, experiment.num_points
    first, second = order[:half], order[half:]
    own = released_order(len(train.y))[:used] if is_reordered else slice(used)
    return Pictures(train.X[own], train.y[own], test.X[first], test.y[first], test.X[second], test.y[second])


@cache
def released_split(size: int = 10_000) -> Order:
    """The order of the test images in the paper's released code; the first half is the validation set."""
    return _released_permutation(size, number=0)


@cache
def released_order(size: int) -> Order:
    """The order of the training images there, cut into shards from the front: one partition for all trials."""
    return _released_permutation(size, number=1)


def _released_permutation(size: int, *, number: int) -> Order:
    """The first or second that is drawn there from `PRNGKey(0)`, whose second half goes on to the next."""
    import jax
    import jax.numpy as jnp

    try:
        device = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX was told to use the GPU alone, which finds the same order
        device = None
    with jax.threefry_partitionable(False), jax.default_device(device):
        rest = jax.random.key(0, impl="threefry2x32")
        for _ in range(number + 1):
            key, rest = jax.random.split(rest)
        return np.asarray(jax.random.permutation(key, jnp.arange(size)), dtype=np.int64)


def fresh_split(name: str, size: int) -> Order:
    """Another order, one for each experiment."""
    return np.random.default_rng(crc32(name.encode())).permutation(size)


def _usual_split(size: int) -> Order:
    return released_split(size) if size == 10_000 else fresh_split("stand-in", size)


def _read(experiment: Experiment, *, is_whole: bool) -> tuple[Part, Part]:
    match experiment.dataset:
        case "digits":
            return _digits()
        case "cifar-10":
            return _cifar(None if is_whole else experiment.num_points)
    loaders: dict[str, Callable[[], Images]] = {"mnist": load_mnist, "fashion-mnist": load_fashion_mnist}
    data = loaders[experiment.dataset]()
    return Part(data.X[..., np.newaxis], _codes(data.y)), Part(data.X_test[..., np.newaxis], _codes(data.y_test))


def _digits() -> tuple[Part, Part]:
    """Brightness from 0 to 255 instead of 16, as in the other datasets."""
    data = load_digits(test_size=_NUM_DIGITS_TEST)
    X, X_test = ((part * 255).round().astype(np.uint8).reshape(-1, 8, 8, 1) for part in (data.X, data.X_test))
    return Part(X, _codes(data.y)), Part(X_test, _codes(data.y_test))


def _codes(labels: NDArray[np.int64]) -> Codes:
    return labels.astype(np.int32)


def _cifar(num_points: int | None) -> tuple[Part, Part]:
    """Only as many batches as the first images take, so that half of the files suffice for two shards; or all."""
    within = data_folder() / cifar.FOLDER
    *train, last = cifar.PUBLISHED
    needed = [*train[: None if num_points is None else -(-num_points // _CIFAR_BATCH)], last]
    if not all((within / name).is_file() for name in needed):
        cifar.load_cifar10()  # says what is missing, and where it belongs
    read = (cifar.read_batch(within / name, sha256=cifar.PUBLISHED[name]) for name in needed)
    *parts, test = (Part(X, _codes(y)) for X, y in read)
    return Part(np.concatenate([part.X for part in parts]), np.concatenate([part.y for part in parts])), test
