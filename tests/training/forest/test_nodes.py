"""The forest that is kept up to date is, byte for byte, the one that the reference grows from what is left."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.core.errors import ExpungeError, InputError
from expunge.training.forest import draws, reference
from expunge.training.forest.draws import ForestOptions

nodes = pytest.importorskip("expunge.training.forest.nodes")
kernels = pytest.importorskip("expunge.training.forest.kernels")
KEY = draws.key_of(7)
PARTS = ("sizes", "features", "thresholds", "totals")
CLASSES = ForestOptions(num_trees=4, share=0.6, num_candidates=7)
NUMBERS = ForestOptions(num_trees=3, share=0.8, num_candidates=5, min_leaf=3, max_depth=7)


@pytest.fixture(autouse=True)
def few_light_nodes(monkeypatch):
    """Keep statistics in small nodes too, so that small forests go through every part of an update."""
    monkeypatch.setattr(nodes, "_MOST_LIGHT", 6)


def same(first, second) -> bool:
    return all(np.asarray(first[name]).tobytes() == np.asarray(second[name]).tobytes() for name in first)


class World:
    """Records that come and go, and the forest of those that are there."""

    def __init__(self, options: ForestOptions, num_classes: int | None, seed: int = 0, count: int = 240):
        self.rng = np.random.default_rng(seed)
        self.options, self.num_classes = options, num_classes
        X = np.round(self.rng.normal(size=(count, 5)), 1) + 0.0  # many equal values, extreme ones alone
        X[self.rng.random(X.shape) < 0.1] = np.nan
        self.X = np.ascontiguousarray(X)
        score = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) ** 2 + 0.3 * self.rng.normal(size=count)
        self.y = score * 100 if num_classes is None else np.digitize(score, np.linspace(0, 2, num_classes - 1))
        self.here, self.away = list(range(count // 2)), list(range(count // 2, count))
        self.forest = self.grown()
        self.num_scratch = 0

    def part(self, ids):
        ids = np.array(ids, dtype=np.int64)
        names = np.stack([np.ones(len(ids), np.uint64), ids.astype(np.uint64)], axis=1)
        return self.X[ids], self.y[ids], names

    def grown(self):
        return nodes.KeptForest.grown(KEY, *self.part(self.here), self.options, self.num_classes)

    def change(self, going, coming):
        rows = self.part(self.here)
        found = self.forest.changed(self.part(going), self.part(coming), lambda: rows)
        gone = set(going)
        self.here = [one for one in self.here if one not in gone] + list(coming)
        self.away = [one for one in self.away if one not in set(coming)] + list(going)
        self.num_scratch += found is None
        self.forest = self.grown() if found is None else found

    def step(self):
        sizes = [0, 1, 1, 1, 2, 5, 30]
        going = self.rng.choice(self.here, min(len(self.here) - 1, self.rng.choice(sizes)), replace=False).tolist()
        coming = self.rng.choice(self.away, min(len(self.away), self.rng.choice(sizes)), replace=False).tolist()
        self.change(going, coming)

    def reference(self):
        X, y, names = self.part(self.here)
        exponent = 0
        if self.num_classes is None:
            exponent = reference.target_exponent(y)
            y = reference.fixed_targets(y, exponent)
        trees = reference.grow_forest(KEY, X, y, names, self.options, self.num_classes)
        answers = (
            reference.values(trees, self.X, exponent)
            if self.num_classes is None
            else reference.probabilities(trees, self.X)
        )
        return trees, answers

    def answers(self):
        return self.forest.values(self.X) if self.num_classes is None else self.forest.probabilities(self.X)

    def is_exact(self) -> bool:
        trees, answers = self.reference()
        mine = self.forest.trees()
        same = all(getattr(trees, name).tobytes() == getattr(mine, name).tobytes() for name in PARTS)
        return same and answers.tobytes() == self.answers().tobytes()


def test_words_are_those_of_the_reference():
    rng = np.random.default_rng(0)
    settings = nodes._settings(CLASSES, KEY, is_numbers=False)
    for first, second in rng.integers(0, 2**64, size=(50, 2), dtype=np.uint64):
        assert kernels.word(settings, first, second) == draws.word(KEY, first[None], second[None])[0]


@pytest.mark.parametrize(
    ("options", "num_classes"),
    [(CLASSES, 2), (CLASSES, 3), (ForestOptions(2, 1.0, 3, max_depth=4), 3), (NUMBERS, None)],
)
def test_any_history_leaves_the_forest_of_what_is_there(options, num_classes):
    world = World(options, num_classes)
    assert world.is_exact()
    for number in range(24):
        world.step()
        if number % 3 == 2:
            assert world.is_exact()
    assert world.num_scratch < 12  # the scale of numbers changes now and then


@pytest.mark.parametrize(("options", "num_classes"), [(CLASSES, 3), (NUMBERS, None)])
def test_extremes_that_many_records_share_stay_until_the_last_of_them_leaves(options, num_classes):
    world = World(options, num_classes, count=600)
    world.X = np.clip(np.round(world.X), -1, 3)  # -1 is common, 3 is rare
    world.forest = world.grown()
    rare = [one for one in world.here if (world.X[one] == 3).any()]
    for one in rare:
        world.change([one], [])
        world.change([one for one in world.here[:1] if one not in rare], [])
    assert world.is_exact()
    world.change(world.here[:40], rare[::2])
    assert world.is_exact()
    for _ in range(6):
        world.step()
    assert world.is_exact()


@pytest.mark.long
@pytest.mark.parametrize(("options", "num_classes"), [(CLASSES, 2), (CLASSES, 4), (NUMBERS, None)])
def test_many_histories_leave_the_forest_of_what_is_there(options, num_classes):
    for seed in range(12):
        world = World(options, num_classes, seed, count=400)
        for _ in range(20):
            world.step()
        assert world.is_exact()


VALUES = (0.0, 1.0, np.nextafter(1.0, 2.0), -1.0, 2.0**400, -(2.0**400), 2.0**-400, 7.0, np.nan)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_table_under_any_history(data):
    """Equal rows, constant columns, gaps, neighbouring and huge numbers, one class, empty forests, changed records."""
    number, width = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 3))
    num_classes = data.draw(st.sampled_from([1, 2, 3, None]))
    rng, pool = np.random.default_rng(data.draw(st.integers(0, 99))), data.draw(st.integers(1, len(VALUES)))
    options = ForestOptions(
        num_trees=3,
        share=data.draw(st.sampled_from([0.3, 0.8, 1.0])),
        num_candidates=data.draw(st.integers(1, 5)),
        min_leaf=data.draw(st.integers(1, 3)),
        max_depth=data.draw(st.sampled_from([0, 2, 48])),
    )

    def drawn(ids):
        X = rng.choice(VALUES[-pool:], (len(ids), width))
        y = (
            rng.choice([0.0, 1.5, -2.0, 1e9, 3.0], len(ids))
            if num_classes is None
            else rng.integers(0, num_classes, len(ids))
        )
        return X, y, np.stack([np.zeros(len(ids), np.uint64), np.asarray(ids, np.uint64)], axis=1)

    everyone = drawn(range(number))
    here = sorted(data.draw(st.sets(st.integers(0, number - 1))))
    forest = nodes.KeptForest.grown(KEY, *(part[here] for part in everyone), options, num_classes)
    for _ in range(data.draw(st.integers(1, 5))):
        going = sorted(data.draw(st.sets(st.sampled_from(here)))) if here else []
        gone = tuple(part[going].copy() for part in everyone)
        away = [one for one in range(number) if one not in here or one in going]  # one that goes may come back, changed
        coming = sorted(data.draw(st.sets(st.sampled_from(away)))) if away else []
        for part, new in zip(everyone[:2], drawn(coming)[:2], strict=True):
            part[coming] = new
        came = tuple(part[coming] for part in everyone)
        here = sorted({*here} - {*going} | {*coming})
        now = tuple(part[here] for part in everyone)
        changed = forest.changed(gone, came)
        forest = nodes.KeptForest.grown(KEY, *now, options, num_classes) if changed is None else changed
        X, y, names = now
        exponent = reference.target_exponent(y) if num_classes is None else 0
        codes = reference.fixed_targets(y, exponent) if num_classes is None else y
        trees = reference.grow_forest(KEY, X, codes, names, options, num_classes)
        mine = forest.trees()
        assert all(getattr(trees, name).tobytes() == getattr(mine, name).tobytes() for name in PARTS)


def test_one_record_after_another_may_leave_and_come_back():
    world = World(CLASSES, 3, count=60)
    everyone = list(world.here)
    before = world.forest.dump()
    for one in everyone[1:]:
        world.change([one], [])
    assert world.is_exact()
    world.change([], everyone[1:])
    assert world.is_exact()
    assert same(before, world.forest.dump())


def test_forests_before_stay_as_they_were_and_may_have_two_successors():
    world = World(CLASSES, 3)
    first, answers, here = world.forest, world.answers(), list(world.here)
    for _ in range(3):
        world.step()
    assert first.probabilities(world.X).tobytes() == answers.tobytes()
    other = World(CLASSES, 3)
    other.forest = first
    other.change(here[:3], other.away[:2])
    assert other.forest._storage is not world.forest._storage
    for each in (world, other):
        for _ in range(4):
            each.step()
        assert each.is_exact()
    assert first.probabilities(world.X).tobytes() == answers.tobytes()


def test_any_tree_of_successors_is_exact():
    """Forests are kept, forgotten and gone on with in any order; what they share is neither lost nor overwritten."""
    rng = np.random.default_rng(3)
    world = World(CLASSES, 3, count=120)
    kept = [(world.forest, world.here, world.away, world.answers().tobytes())]
    for number in range(60):
        world.forest, world.here, world.away, _ = kept[rng.integers(len(kept))]
        world.step()
        kept.append((world.forest, world.here, world.away, world.answers().tobytes()))
        if len(kept) > 3:
            del kept[rng.integers(len(kept))]
        if number % 5 == 4:
            for world.forest, world.here, world.away, answers in kept:
                assert world.is_exact()
                assert world.answers().tobytes() == answers


def test_what_older_forests_left_is_used_again():
    """After many updates the forest takes no more room than after few, and holds no record that left."""
    world = World(CLASSES, 3)
    sizes = []
    for number in range(120):
        world.change(world.here[:2], world.away[:2])
        sizes.append(world.forest.num_bytes)
        if number % 30 == 0:
            assert world.is_exact()
    assert max(sizes[60:]) < 1.1 * max(sizes[:60])
    gone = world.here[:3]
    world.change(gone, [])
    world.change([], [])  # gives back
    storage = world.forest._storage
    names = {tuple(each) for each in storage.arena.names[: storage.num_rows].tolist()}
    assert len(names & {(1, one) for one in gone}) == 0
    assert len(names & {(1, one) for one in world.here}) > 20


def test_a_forest_of_few_of_its_records_is_copied(monkeypatch):
    monkeypatch.setattr(nodes, "_LEAST_ROOM", 8)
    world = World(CLASSES, 3)
    before = world.forest.num_bytes
    world.change(world.here[:100], [])
    world.change(world.here[:1], [])
    world.change(world.here[:1], [])
    assert world.is_exact()
    assert world.forest.num_bytes < before / 2


def test_room_that_is_missing_is_made(monkeypatch):
    monkeypatch.setattr(nodes, "_ROOM", 0.0)
    monkeypatch.setattr(nodes, "_LEAST_ROOM", 8)
    world = World(CLASSES, 3)
    sizes = [len(world.forest._arena.nodes)]
    for _ in range(6):
        world.step()
        sizes.append(len(world.forest._arena.nodes))
        assert world.is_exact()
    assert sizes[-1] > sizes[0]


def test_an_update_that_fails_leaves_the_forest_as_it_was(monkeypatch):
    monkeypatch.setattr(nodes, "_ROOM", 0.0)
    monkeypatch.setattr(nodes, "_LEAST_ROOM", 8)
    world = World(CLASSES, 3)
    world.step()

    def failing(storage, ratio):
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(nodes._Storage, "widen", failing)
        for _ in range(5):
            with pytest.raises(MemoryError):
                world.change([], world.away)
    assert world.is_exact()
    for _ in range(6):
        world.step()
    assert world.is_exact()


def test_threads_answer_while_others_update():
    world, stop, wrong = World(CLASSES, 3), threading.Event(), []
    answers = world.answers().tobytes()

    def ask(forest):
        while not stop.is_set():
            if forest.probabilities(world.X).tobytes() != answers:
                wrong.append(1)

    asking = threading.Thread(target=ask, args=(world.forest,))
    asking.start()
    for _ in range(30):
        world.step()
    stop.set()
    asking.join()
    assert not wrong
    assert world.is_exact()


@pytest.mark.parametrize(("options", "num_classes"), [(CLASSES, 3), (NUMBERS, None)])
def test_a_stored_forest_goes_on(options, num_classes):
    world = World(options, num_classes)
    world.step()
    parts = world.forest.dump()
    world.forest = nodes.KeptForest.loaded(parts, options, num_classes)
    assert world.is_exact()
    assert world.forest.changed(world.part(world.here[:1]), world.part([])) is None  # needs its records
    assert same(parts, world.forest.dump())
    for _ in range(5):
        world.step()
    assert world.is_exact()
    order = np.random.default_rng(0).permutation(len(world.here))
    shuffled = nodes.KeptForest.grown(KEY, *(each[order] for each in world.part(world.here)), options, num_classes)
    assert same(shuffled.dump(), world.forest.dump())


def break_counts(storage):
    storage.arena.lefts[: storage.tips[1], :, 0] += 3


def break_lowest(storage):
    """As if thresholds outlived the record that had the least value."""
    storage.arena.bounds[: storage.tips[1], :, kernels.LOW] -= 1.0


def break_members(storage):
    storage.arena.members[: storage.tips[2]] = storage.arena.members[: storage.tips[2]][::-1]


@pytest.mark.parametrize("broken", [None, break_counts, break_lowest, break_members])
def test_statistics_that_are_wrong_are_caught(broken):
    world = World(CLASSES, 3)
    if broken:
        broken(world.forest._storage)
    try:
        for _ in range(8):
            world.step()
        is_exact = world.is_exact()
    except InputError:  # a record is not where it should be
        is_exact = False
    assert is_exact == (broken is None)


def test_records_that_are_not_there_are_refused():
    world = World(CLASSES, 3)
    with pytest.raises(InputError, match="not in the model"):
        world.forest.changed(world.part(world.away[:30]), world.part([]))
    assert world.is_exact()
    numbers = World(NUMBERS, None)
    gone = numbers.part(numbers.here[:1])
    with pytest.raises(InputError, match="not in the model"):
        numbers.forest.changed((gone[0], np.array([1e-30]), gone[2]), numbers.part([]))


CHANGES = {
    "a child outside": lambda p: {"sizes": np.where(np.arange(4) == 1, p["sizes"] + 2, p["sizes"])},
    "an endless way": lambda p: {"features": np.zeros_like(p["features"])},
    "a leaf too many": lambda p: {"features": np.full_like(p["features"], -1)},
    "a feature that is none": lambda p: {"features": np.where(p["features"] == 1, np.int8(99), p["features"])},
    "a negative size": lambda p: {"sizes": -p["sizes"]},
    "a negative count": lambda p: {"totals": p["totals"] - 5},
    "a huge count": lambda p: {"totals": p["totals"].astype(np.int64) + 2**40},
    "a count that is no integer": lambda p: {"totals": p["totals"] + 0.5},
    "another type": lambda p: {"features": p["features"].astype(np.float64)},
    "a threshold missing": lambda p: {"thresholds": p["thresholds"][1:]},
    "no number": lambda p: {"thresholds": p["thresholds"] * np.nan},
    "no column": lambda p: {"columns": 0},
    "exponents of classes": lambda p: {"exponents": np.array([[1, 1]])},
    "records that are too few": lambda p: {"records": 3},
    "records that are no number": lambda p: {"records": "many"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_damaged_arrays_are_refused_before_compiled_code_follows_them(change):
    parts = World(CLASSES, 3).forest.dump()
    with pytest.raises(ExpungeError, match=r"stored model|records must be"):
        nodes.KeptForest.loaded(parts | CHANGES[change](parts), CLASSES, 3)


@pytest.mark.parametrize(("name", "by"), [("thresholds", 1.0), ("key", 1), ("records", 1)])
def test_trees_that_do_not_fit_to_the_records_are_found_when_they_are_needed(name, by):
    world = World(CLASSES, 3)
    parts = world.forest.dump()
    loaded = nodes.KeptForest.loaded(parts | {name: parts[name] + by}, CLASSES, 3)
    assert loaded.probabilities(world.X).shape == (len(world.X), 3)
    for _ in range(2):
        with pytest.raises(InputError, match="do not fit"):
            loaded.changed(world.part([]), world.part(world.away[:1]), lambda: world.part(world.here))


def test_random_damage_never_ends_the_process():
    """Random bytes are put into every array; what is loaded can be asked, changed and stored, or is refused."""
    world, rng = World(CLASSES, 3, count=120), np.random.default_rng(0)
    parts = world.forest.dump()
    refused = 0
    for _ in range(150):
        name = rng.choice(["sizes", "features", "thresholds", "totals", "exponents"])
        raw = bytearray(np.ascontiguousarray(parts[name]).tobytes())
        for _ in range(rng.integers(1, 4)):
            if raw:
                raw[rng.integers(len(raw))] = rng.integers(256)
        array = np.frombuffer(bytes(raw), parts[name].dtype).reshape(parts[name].shape)
        try:
            loaded = nodes.KeptForest.loaded(parts | {str(name): array}, CLASSES, 3)
            loaded.probabilities(world.X)
            changed = loaded.changed(
                world.part(world.here[:2]), world.part(world.away[:2]), lambda: world.part(world.here)
            )
            changed.dump()
        except InputError:
            refused += 1
    assert 30 < refused < 150


def test_pickled_learner_models_are_the_same():
    from expunge.training.learners import UnlearningForest

    world = World(CLASSES, 3)
    X, y, _ = world.part(world.here)
    learner = UnlearningForest(4, 0.6, 7).for_classes(np.arange(3))
    model = learner.fit(X, y, 5)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.probabilities(X, 3), model.probabilities(X, 3))
