"""Data to attack, by name; what is missing is said clearly."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest

from expunge.audit import AuditRequest, images, small_zeros_and_ones_task, zeros_and_ones_task
from expunge.core.errors import InputError, ParameterError


def write_idx(path, array):
    head = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(head + array.astype(np.uint8).tobytes(), mtime=0))


@pytest.fixture
def tiny_mnist(tmp_path, monkeypatch):
    """Forty images in the place of MNIST."""
    import hashlib

    rng = np.random.default_rng(0)
    folder = tmp_path / "mnist"
    folder.mkdir()
    digests = {}
    for part, size in (("train", 40), ("t10k", 10)):
        files = {
            f"{part}-images-idx3-ubyte.gz": rng.integers(0, 256, size=(size, 28, 28)),
            f"{part}-labels-idx1-ubyte.gz": np.arange(size) % 3,
        }
        for name, array in files.items():
            write_idx(folder / name, array)
            digests[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    monkeypatch.setitem(images.PUBLISHED, "mnist", digests)
    monkeypatch.setenv("EXPUNGE_DATA", str(tmp_path))


@pytest.mark.usefixtures("tiny_mnist")
def test_zeros_and_ones_of_mnist():
    task = zeros_and_ones_task(num_records=20)
    assert len(task.records) == 20
    assert set(task.columns[2].tolist()) == {0, 1}
    assert len(task.test_codes) == 7
    model = task.learner.fit(task.columns[1], task.columns[2], 0)
    assert model.predict(task.columns[1]).tolist() == task.columns[2].tolist()  # its own nearest neighbour


def test_without_mnist_the_stand_in_is_offered(tmp_path, monkeypatch):
    monkeypatch.setenv("EXPUNGE_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"mnist is not in .*digits can stand in for MNIST \(--data digits\)"):
        zeros_and_ones_task()


def test_the_stand_in_has_the_same_shape():
    task = small_zeros_and_ones_task(num_records=100)
    model = task.learner.fit(task.columns[1], task.columns[2], 0)
    answers = model.predict(task.test_points)
    assert np.mean(answers == task.test_codes) > 0.5
    assert (answers >= 0).any()
    assert not (answers == 1 - task.test_codes).any()  # wrong only by silence


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scenario": "nothing"}, "scenario must be one of lookup"),
        ({"scenario": "lookup", "data": "mnist"}, "no option data"),
        ({"scenario": "lookup", "setting": "models"}, "no option setting"),
        ({"scenario": "label-only", "data": "cifar"}, "data must be one of"),
        ({"scenario": "white-box", "requester": "random"}, "module:factory"),
        ({"scenario": "membership", "learner": "forest"}, "learner must be one of"),
        ({"scenario": "membership", "requester": "random"}, "no option requester"),
        ({"scenario": "lookup", "scheme": "magic"}, "scheme must be one of"),
        ({"scenario": "lookup", "scheme": "json:nothing"}, "the module .json. has no .nothing."),
        ({"scenario": "lookup", "scheme": "no_such_module:x"}, "cannot be imported"),
        ({"scenario": "lookup", "scheme": "json:"}, "a factory must be .package.module:name., got .json:."),
        ({"scenario": "lookup", "scheme": "math:pi"}, "must be a function"),
        ({"scenario": "lookup", "scheme": "builtins:object"}, "has no learn, update, records_of, release"),
        ({"scenario": "lookup", "scheme": "builtins:object", "num_shards": 3}, "num_shards is for"),
        ({"scenario": "membership", "learner": "builtins:object"}, "must make a learner"),
    ],
)
def test_impossible_requests_are_refused(options, message):
    with pytest.raises((ParameterError, InputError), match=message):
        AuditRequest(**options).build()


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        ({"scenario": "lookup", "size": 9, "requester": "add"}, {"num_pairs": 9, "requester": "add"}),
        ({"scenario": "label-only", "data": "digits", "size": 7, "num_records": 50}, {"num_deletions": 7}),
        ({"scenario": "white-box", "num_records": 50, "learner": "nearest"}, {"num_records": 50}),
        ({"scenario": "membership", "size": 5, "num_records": 50}, {"num_targets": 5}),
        ({"scenario": "slow-down", "size": 2, "num_records": 50, "setting": "labels"}, {"setting": "labels"}),
        ({"scenario": "membership", "learner": "sklearn.naive_bayes:GaussianNB"}, {"num_records": 300}),
    ],
)
def test_requests_by_name(options, parameters):
    scenario, scheme = AuditRequest(scheme="majority", num_shards=4, **options).build()
    assert scenario.name == options["scenario"]
    assert parameters.items() <= scenario.parameters.items()
    assert scheme.num_shards == 4
