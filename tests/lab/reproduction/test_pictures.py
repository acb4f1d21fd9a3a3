from __future__ import annotations

import hashlib

import numpy as np
import pytest

from expunge.core.errors import InputError
from expunge_lab.datasets import cifar
from expunge_lab.reproduction import (
    EXPERIMENTS,
    QUICK_EXPERIMENTS,
    Experiment,
    fresh_split,
    load_pictures,
    released_order,
    released_split,
)


def test_the_released_split_is_one_known_permutation():
    pytest.importorskip("jax")
    order = released_split()
    assert sorted(order.tolist()) == list(range(10_000))
    assert order[:6].tolist() == [4144, 443, 283, 1785, 612, 7579]
    digest = hashlib.sha256(order.astype("<i8").tobytes()).hexdigest()
    assert digest == "5c6edeb637784d18e8f9c626fd3cc05f3b4eb227cba86d448ee826bb93fedfb7"


@pytest.mark.parametrize(
    ("size", "first", "digest"),
    [
        (60_000, [40271, 56377, 12242], "ce68b76cd2566be4da5fd156354cc363a8b800194e9f1e2338d2c787ebf9a73a"),
        (50_000, [8614, 20281, 31078], "1f61547909fd02a10a3bff431e8e5a2dcc32cc86714c158a54c9577dee47cd14"),
    ],
)
def test_the_released_order_is_another_known_permutation(size, first, digest):
    pytest.importorskip("jax")
    order = released_order(size)
    assert sorted(order.tolist()) == list(range(size))
    assert order[:3].tolist() == first
    assert hashlib.sha256(order.astype("<i8").tobytes()).hexdigest() == digest


def test_the_released_split_needs_no_cpu_device(monkeypatch):
    """`JAX_PLATFORMS=cuda` hides it."""
    jax = pytest.importorskip("jax")

    def hidden(*, backend):
        raise RuntimeError(f"Unknown backend {backend}")

    expected = released_split()
    monkeypatch.setattr(jax, "local_devices", hidden)
    assert np.array_equal(released_split.__wrapped__(10_000), expected)


def test_a_fresh_split_is_another_one_for_every_experiment():
    splits = [fresh_split(experiment.name, 10_000) for experiment in EXPERIMENTS]
    assert len({tuple(split[:5].tolist()) for split in splits}) == len(splits)
    assert np.array_equal(splits[0], fresh_split(EXPERIMENTS[0].name, 10_000))


def test_digits_are_there_and_cut_into_disjoint_parts():
    for experiment in QUICK_EXPERIMENTS:
        pictures = load_pictures(experiment)
        assert pictures.X.shape == (experiment.num_points, 8, 8, 1)
        assert (pictures.side, pictures.channels, pictures.X.dtype) == (8, 1, np.uint8)
        assert len(pictures.y_validation) == len(pictures.y_test) == 250
        together = np.concatenate([pictures.X_validation, pictures.X_test])
        again = load_pictures(experiment, has_fresh_split=True)
        assert sorted(map(bytes, together)) == sorted(map(bytes, np.concatenate([again.X_validation, again.X_test])))
        assert not np.array_equal(pictures.X_test, again.X_test)
        assert np.array_equal(load_pictures(experiment, has_released_order=True).X, pictures.X)


@pytest.fixture
def small_cifar(tmp_path, monkeypatch):
    """Batches of four pictures, of which all but the first two and the last may be missing."""
    rng = np.random.default_rng(0)
    monkeypatch.setenv("EXPUNGE_DATA", str(tmp_path))
    monkeypatch.setattr("expunge_lab.reproduction.pictures._CIFAR_BATCH", 4)
    monkeypatch.setattr("expunge_lab.reproduction.pictures._usual_split", lambda size: np.arange(size))
    folder = tmp_path / cifar.FOLDER
    folder.mkdir(parents=True)
    digests = {}
    for name in cifar.PUBLISHED:
        content = rng.integers(10, size=(4, 3073)).astype(np.uint8).tobytes()
        digests[name] = hashlib.sha256(content).hexdigest()
        (folder / name).write_bytes(content)
    monkeypatch.setattr(cifar, "PUBLISHED", digests)
    return folder


def test_two_shards_of_cifar_need_only_the_first_batches(small_cifar):
    for number in (3, 4, 5):
        (small_cifar / f"data_batch_{number}.bin").unlink()
    pictures = load_pictures(Experiment("cifar-10", 2, 3, 1, 20, 1.0, "relu"))
    assert pictures.X.shape == (6, 32, 32, 3)
    assert pictures.X_test.shape == (2, 32, 32, 3)
    raw = np.frombuffer((small_cifar / "data_batch_2.bin").read_bytes(), np.uint8).reshape(4, 3073)
    assert pictures.y[4:].tolist() == raw[:2, 0].tolist()
    assert pictures.X[4, 0, 1].tolist() == [raw[0, 2], raw[0, 1026], raw[0, 2050]]
    with pytest.raises(InputError, match=r"data_batch_3\.bin is missing"):
        load_pictures(Experiment("cifar-10", 3, 3, 1, 20, 1.0, "relu"))


def test_the_released_order_is_of_all_images(small_cifar):
    """Twenty of them, of which two shards of three are the first."""
    pytest.importorskip("jax")
    experiment = Experiment("cifar-10", 2, 3, 1, 20, 1.0, "relu")
    names = [f"data_batch_{number}.bin" for number in range(1, 6)]
    raw = np.frombuffer(b"".join((small_cifar / name).read_bytes() for name in names), np.uint8).reshape(20, 3073)
    pictures, usual = load_pictures(experiment, has_released_order=True), load_pictures(experiment)
    assert pictures.y.tolist() == raw[released_order(20)[:6], 0].tolist()
    assert pictures.X[:, 0, 0, 0].tolist() == raw[released_order(20)[:6], 1].tolist()
    assert np.array_equal(pictures.X_test, usual.X_test)
    assert not np.array_equal(pictures.X, usual.X)
    (small_cifar / "data_batch_5.bin").unlink()
    with pytest.raises(InputError, match=r"data_batch_5\.bin is missing"):
        load_pictures(experiment, has_released_order=True)
