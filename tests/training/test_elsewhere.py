"""What a worker on another machine is given, and what it does with it."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import expunge
from expunge import Recipe, RecipeKey, Records, learn, update
from expunge.core.errors import ExpungeError, StoreError
from expunge.core.records import Delete
from expunge.folder.codec import encode_model
from expunge.serving.promises import Unguarded
from expunge.training.elsewhere import ShardAddress
from expunge.training.execution import Serial
from expunge.training.learners import LookupTableLearner, ScikitLearner
from expunge.training.parcels import make_key, open_parcel, result_of, seal, work
from expunge.training.recipe import Recipe as TheRecipe


class Sealed:
    """Calls as on another machine, one after another; it keeps what travelled."""

    num_workers, is_remote = 2, True

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.items: list[list] = []

    def map(self, function, items):
        key = make_key()
        for place in range(len(items)):
            parcel = seal(key, items[place])
            self.sent.append(parcel)
            self.items.append(open_parcel(key, parcel))
            yield result_of(key, work(key, seal(key, function), parcel))

    def start(self):
        pass

    def close(self):
        pass


def rows_of(kind: str, numbers: list[int]):
    draws = [np.random.default_rng(number).integers(0, 9, size=5) for number in numbers]
    match kind:
        case "numbers":
            return np.array(draws, dtype=np.float32)
        case "frame":
            names = pd.Categorical([f"c{row[0] % 3}" for row in draws], categories=["c0", "c1", "c2"])
            texts = [f"text {row[1] % 4}" for row in draws]
            return pd.DataFrame({"a": [float(row[2]) for row in draws], "b": names, "c": texts})
        case "sparse":
            return scipy.sparse.csr_matrix(np.array(draws, dtype=np.float64))
    return np.array([*(f"word{row[0]} word{row[1]}" for row in draws), None])[:-1]


LEARNERS = {
    "numbers": LookupTableLearner,
    "frame": lambda: make_pipeline(OneHotEncoder(handle_unknown="ignore"), BernoulliNB()),
    "sparse": MultinomialNB,
    "texts": lambda: make_pipeline(CountVectorizer(), MultinomialNB()),
}


def live(folder: Path, kind: str, executor, where: str) -> list[bytes]:
    """Create, delete, add and delete what was added; the bytes of the models at the end."""
    table = folder.with_name(f"{folder.name}-table") if where == "elsewhere" else None
    options = {
        "n_shards": 5,
        "encrypt": where == "encrypted",
        "records_at": table,
        "rng": expunge.Randomness.from_seed(5),
    }
    options |= {
        "subjects": [f"p{n // 2}" for n in range(60)],
        "executor": executor,
        "ids": [f"i{n}" for n in range(60)],
    }
    with expunge.create(folder, LEARNERS[kind](), rows_of(kind, [*range(60)]), np.arange(60) % 3, **options) as made:
        made.delete(["i3", "i17"])
        made.add(rows_of(kind, [101, 102, 103]), [0, 1, 2], ["x", "y", "z"])
    with expunge.open(folder, executor=executor) as made:
        made.delete(["x"], subjects=["p4"])
        made.add(rows_of(kind, [104]), [1], ["w"])
        made.delete(["y"])
        state = made.inside.state
        return [encode_model(state.learner, model, trusted=()).data for model in state.models]


@pytest.mark.parametrize("where", ["folder", "encrypted", "elsewhere"])
@pytest.mark.parametrize("kind", ["numbers", "frame", "sparse", "texts"])
def test_workers_read_records_by_themselves_and_give_the_same_bytes(tmp_path, monkeypatch, kind, where):
    expected = live(tmp_path / "here", kind, Serial(), where)
    executor, contents, made = Sealed(), TheRecipe.contents, []
    monkeypatch.setattr(TheRecipe, "contents", lambda *given: made.append(given[2]) or contents(*given))
    assert live(tmp_path / "there", kind, executor, where) == expected
    assert {type(shard) for batch in executor.items for shard in batch} == {ShardAddress}
    extras = [shard.extra for batch in executor.items for shard in batch if shard.extra is not None]
    assert sum(map(len, extras)) == 4  # only what is added in the round itself travels
    assert all(records.num_slots == len(records) for records in made)  # of one shard, made by a worker


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_what_travels_does_not_grow_with_the_records(tmp_path, is_elsewhere):
    sizes = []
    for count in (500, 5_000):
        executor = Sealed()
        X = np.random.default_rng(1).normal(size=(count, 20))
        options = {"n_shards": 4, "executor": executor, "rng": expunge.Randomness.from_seed(5)}
        options["records_at"] = tmp_path / f"table-{count}" if is_elsewhere else None
        with expunge.create(tmp_path / str(count), GaussianNB(), X, np.arange(count) % 2, **options) as made:
            made.delete([7, 8])
        sizes.append(max(map(len, executor.sent)))
    assert sizes[1] < sizes[0] + 100 < X.nbytes / 100


def test_independent_shards_a_folder_that_moves_and_a_rewriting(tmp_path):
    X, y = np.arange(120.0).reshape(60, 2), np.arange(60) % 3

    def live_on(name, executor):
        options = {"n_shards": 4, "inclusion_probability": 0.5, "promise": Unguarded(), "sampling": "independent"}
        rng = expunge.Randomness.from_seed(5)
        expunge.create(tmp_path / name, LookupTableLearner(), X, y, executor=executor, rng=rng, **options).close()
        (tmp_path / name).rename(tmp_path / f"{name}-moved")
        with expunge.open(tmp_path / f"{name}-moved", executor=executor) as made:
            made.delete([5])
            made.rekey()
            made.delete([6])
            return made.predict(X).tolist(), made.status.round

    executor = Sealed()
    assert live_on("there", executor) == live_on("here", Serial())
    assert {type(shard) for batch in executor.items for shard in batch} == {ShardAddress}


def test_a_record_that_was_erased_or_a_folder_that_is_not_there_is_told(tmp_path):
    X, y = np.arange(120.0).reshape(60, 2), np.arange(60) % 3
    with expunge.create(tmp_path / "d", GaussianNB(), X, y, n_shards=3) as made:
        source = pickle.loads(pickle.dumps(made.inside.state.records.source))
        assert len(source.read(np.array([0, 7, 59]))) == 3
        gone = made.inside.state.records.slot_of(9)
        made.delete([9])
        with pytest.raises(StoreError, match="erased while it was read"):
            source.read(np.array([gone]))
    (tmp_path / "d").rename(tmp_path / "e")
    with pytest.raises(StoreError, match=r"the worker on .* cannot read .*d \(No such file"):
        pickle.loads(pickle.dumps(source)).read(np.array([0]))
    slab = next((tmp_path / "e").glob("records/*/features.slab"))
    content = slab.read_bytes()
    slab.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    source.folder = tmp_path / "e"
    with pytest.raises(StoreError, match="row 0 is not what was written"):
        pickle.loads(pickle.dumps(source)).read(np.array([0]))


class Travelled(ScikitLearner):
    """A learner that finds another environment wherever it is unpickled."""

    here = "home"

    def environment(self):
        return {"device": self.here}

    def __setstate__(self, state):
        self.__dict__.update(state)
        object.__setattr__(self, "here", "abroad")


def test_a_worker_with_another_environment_is_refused_or_recorded():
    records = Records.build(np.arange(24.0).reshape(12, 2), np.arange(12) % 2)
    recipe = Recipe(Travelled(GaussianNB()), 3, key=RecipeKey.from_seed(1))
    with pytest.raises(ExpungeError, match=r"would give other bits \(device home -> abroad\)"):
        learn(records, recipe, executor=Sealed())
    lenient = Recipe(Travelled(GaussianNB()), 3, key=RecipeKey.from_seed(1), numerics="lenient")
    state = learn(records, lenient, executor=Sealed())
    assert [dict(each.facts)["device"] for each in state.environments] == ["abroad"] * 3
    assert state.foreign_shards == {0, 1, 2}
    state, report = update(state, [Delete(5)])  # here
    assert [dict(each.facts)["device"] for each in state.environments].count("home") == len(report.touched) == 1
    state, report = update(state, [Delete(4)], executor=Sealed())
    assert state.foreign_shards >= set(report.touched)


def test_records_in_memory_travel_themselves():
    records = Records.build(np.arange(24.0).reshape(12, 2), np.arange(12) % 2)
    recipe, executor = Recipe(ScikitLearner(KNeighborsClassifier(1)), 3, key=RecipeKey.from_seed(1)), Sealed()
    X = np.arange(24.0).reshape(12, 2)
    assert learn(records, recipe, executor=executor).votes(X).tolist() == learn(records, recipe).votes(X).tolist()
    assert {type(shard).__name__ for batch in executor.items for shard in batch} == {"ShardData"}
    assert not any(X[0].tobytes() in parcel for parcel in executor.sent)
