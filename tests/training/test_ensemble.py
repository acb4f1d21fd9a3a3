"""A_distr and R_A: the laws that Lemma 4.1 and `lem:shard-dist` promise, exactly and by χ²."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expunge.core.errors import ParameterError, TrainingError, UnknownRecordError
from expunge.core.prf import RecipeKey, id_names
from expunge.core.records import Add, Delete, Records
from expunge.training import ensemble
from expunge.training.ensemble import learn, update
from expunge.training.execution import Processes
from expunge.training.learners import (
    Abstainer,
    AbstainingLearner,
    LookupTable,
    LookupTableLearner,
    ScikitLearner,
    SlicedScikitLearner,
)
from expunge.training.recipe import Recipe
from expunge.training.sampling import IndependentSampler, PartitionSampler


@dataclass(frozen=True)
class SeedKeeper:
    """A learner whose model is everything it was given: the records' keys and the seed."""

    def fit(self, X, y, seed, *, weights=None):
        return Kept(tuple(X[:, 0].tolist()), seed)


@dataclass(frozen=True)
class Kept:
    keys: tuple[float, ...]
    seed: int

    def predict(self, X):
        return np.zeros(len(X), dtype=np.int64)


@dataclass(frozen=True)
class SlicedSeedKeeper:
    """The same, slice by slice."""

    num_slices: int = 2
    is_cumulative: bool = False

    def extend(self, checkpoint, X, y, seed, *, weights):
        return (*(checkpoint or ()), (tuple(X[:, 0].tolist()), seed))

    def make_model(self, checkpoint):
        return Kept(checkpoint, 0)


def table(keys) -> Records:
    keys = list(keys)
    return Records.build(np.array(keys, dtype=float).reshape(-1, 1), [0] * len(keys), ids=keys, classes=[0, 1])


def add(key):
    return Add(id=key, features=[key], label=0)


def contents(state) -> tuple:
    """The whole state as a value: each shard's ids and its model."""
    ids = [tuple(state.records.id_of(int(s)) for s in slots) for slots in state.members]
    return tuple(zip(ids, (_model(m) for m in state.models), strict=True))


def _model(model):
    return () if isinstance(model, Abstainer) else getattr(model, "checkpoints", model)


def run(key, keys, batches, *, learner, sampler, num_shards, updater=update):
    state = learn(table(keys), Recipe(learner, num_shards, sampler, key))
    for batch in batches:
        state, _ = updater(state, batch)
    return frozen(contents(state))


def frozen(state):
    """Slots are numbered in order of arrival, which is no part of the state; models keep the order of training."""
    return tuple((frozenset(ids), model) for ids, model in state)


def fresh(key, keys, batches, **options):
    """A_ϱ on the final dataset, its records in the order of their ids."""
    records = table(keys)
    for batch in batches:
        records, _ = records.apply(batch)
    return run(key, sorted(records.ids()), [], **options)


def broken_update(kind):
    """R_A with one step left out or done wrong."""

    def forgets_to_retrain(state, batch):
        done, report = update(state, batch)
        return replace(done, models=state.models), report

    def trains_in_order_of_arrival(state, batch):
        done, report = update(state, batch)
        models = list(done.models)
        for shard in report.touched:
            X, y, weights = done.records.gather(done.members[shard])
            if len(y):
                models[shard] = done.learner.fit(X, y, done.contents(shard).seed, weights=weights)
        return replace(done, models=tuple(models)), report

    def keeps_old_seeds(state, batch):
        done, report = update(state, batch)
        models = list(done.models)
        for shard in report.touched:
            now, before = done.contents(shard), state.contents(shard)
            if len(now.y) and len(before.y):
                models[shard] = done.learner.fit(now.X, now.y, before.seed, weights=now.weights)
        return replace(done, models=tuple(models)), report

    def draws_new_shards_for_what_comes_back(state, batch):
        if isinstance(batch[0], Delete):
            return update(state, batch)
        done, report = update(replace(state, recipe=replace(state.recipe, key=state.key.renewed())), batch)
        return replace(done, recipe=state.recipe), report

    def deletes_from_one_shard_only(state, batch):
        done, report = update(state, batch)
        kept = report.touched[1:]
        members, models = list(done.members), list(done.models)
        for shard in kept:
            members[shard], models[shard] = state.members[shard], state.models[shard]
        return replace(done, members=tuple(members), models=tuple(models)), report

    return locals()[kind]


SEQUENCES = [
    [[Delete(1)]],
    [[add(9)]],
    [[Delete(1)], [add(1)]],
    [[Delete(0), add(7)], [Delete(7)]],
    [[Delete(0)], [Delete(1)], [add(5)]],
    [[Delete(1)], [add(1)], [Delete(0)], [add(0)]],
]


@pytest.mark.parametrize("batches", SEQUENCES, ids=str)
@pytest.mark.parametrize("p", [0.5, 1 / 3])
def test_updated_state_has_exactly_the_law_of_a_fresh_one(exact_law, random_function, batches, p):
    """Lemma 4.1 by enumeration of every value of F, also where ids come back: shards, models and seeds jointly."""
    options = {"learner": SeedKeeper(), "sampler": IndependentSampler(p), "num_shards": 2}
    updated = exact_law(lambda rng: run(random_function(rng), [0, 1], batches, **options), num_seeds=2)
    assert updated == exact_law(lambda rng: fresh(random_function(rng), [0, 1], batches, **options), num_seeds=2)


@pytest.mark.parametrize("batches", SEQUENCES[:4], ids=str)
@pytest.mark.parametrize("is_cumulative", [False, True])
def test_slices_have_exactly_the_law_of_training_from_scratch(exact_law, random_function, batches, is_cumulative):
    options = {"learner": SlicedSeedKeeper(2, is_cumulative), "sampler": IndependentSampler(0.5), "num_shards": 1}
    updated = exact_law(lambda rng: run(random_function(rng), [0, 1], batches, **options), num_seeds=2)
    assert updated == exact_law(lambda rng: fresh(random_function(rng), [0, 1], batches, **options), num_seeds=2)


@pytest.mark.parametrize("batches", [SEQUENCES[0], SEQUENCES[1], SEQUENCES[2]], ids=str)
def test_sisa_with_random_assignment_is_exact_for_fixed_sequences(exact_law, random_function, batches):
    """Algorithms 5 and 6 against requests fixed in advance; Theorem 5.1 shows that adaptive ones break them."""
    options = {"learner": SeedKeeper(), "sampler": PartitionSampler(), "num_shards": 2}
    updated = exact_law(lambda rng: run(random_function(rng), [0, 1], batches, **options))
    assert updated == exact_law(lambda rng: fresh(random_function(rng), [0, 1], batches, **options))


@pytest.mark.parametrize("kind", ["forgets_to_retrain", "deletes_from_one_shard_only"])
def test_a_broken_update_fails_the_exact_test(exact_law, random_function, kind):
    options = {"learner": SeedKeeper(), "sampler": IndependentSampler(0.5), "num_shards": 2}
    batches = [[Delete(1)], [add(9)]]
    wrong = {**options, "updater": broken_update(kind)}
    broken = exact_law(lambda rng: run(random_function(rng), [0, 1], batches, **wrong), num_seeds=2)
    assert broken != exact_law(lambda rng: fresh(random_function(rng), [0, 1], batches, **options), num_seeds=2)


SAMPLERS = [IndependentSampler(0.4), PartitionSampler()]
KEY = RecipeKey.from_seed(11)
ALL_LEARNERS = [SeedKeeper(), SlicedSeedKeeper(3), SlicedSeedKeeper(3, is_cumulative=True), LookupTableLearner()]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
@pytest.mark.parametrize("learner", ALL_LEARNERS, ids=str)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_after_any_history_the_state_is_what_the_recipe_gives(learner, sampler, data):
    """T6: `update(learn(D), u) == learn(D after u)`, for sequences that may depend on everything."""
    options = {"learner": learner, "sampler": sampler, "num_shards": 3}
    batches = draw_batches(data)
    assert run(KEY, range(4), batches, **options) == fresh(KEY, range(4), batches, **options)


@pytest.mark.parametrize(
    "kind",
    [
        "forgets_to_retrain",
        "trains_in_order_of_arrival",
        "keeps_old_seeds",
        "draws_new_shards_for_what_comes_back",
        "deletes_from_one_shard_only",
    ],
)
def test_a_state_with_a_history_is_caught(kind):
    options = {"learner": SeedKeeper(), "sampler": IndependentSampler(0.6), "num_shards": 4}
    batches = [[Delete(1)], [add(9), add(8)], [Delete(0)], [add(1)]]
    wrong = run(KEY, range(4), batches, updater=broken_update(kind), **options)
    assert wrong != fresh(KEY, range(4), batches, **options)


def draw_batches(data):
    """A random update sequence over eight ids, fixed in advance."""
    live, batches = {0, 1, 2, 3}, []
    for _ in range(data.draw(st.integers(1, 4), label="batches")):
        batch = []
        for key in data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=4), label="ids"):
            batch.append(Delete(key) if key in live else add(key))
            live ^= {key}
        batches.append(batch)
    return batches


LEARNERS = [SeedKeeper(), SlicedSeedKeeper(3), LookupTableLearner()]
DRAWS, CELLS = 600, 16


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
@settings(max_examples=4, deadline=None, derandomize=True, phases=[Phase.generate])
@given(data=st.data())
def test_any_fixed_sequence_keeps_the_law(learner, data):
    """Updated against fresh states, shards and models together, after a generated sequence.

    False alarm at most 1e-6 over all sequences and learners (see `_same_law`).
    """
    batches = draw_batches(data)
    options = {"learner": learner, "sampler": IndependentSampler(0.4), "num_shards": 2}

    def sample(program, first):
        keys = (RecipeKey.from_seed(first + draw) for draw in range(DRAWS))
        return [_statistics(program(key, range(4), batches, **options)) for key in keys]

    assert _same_law(sample(run, 0), sample(fresh, 10**6))


BROKEN = [
    (learner, kind)
    for learner in LEARNERS
    for kind in ("forgets_to_retrain", "deletes_from_one_shard_only")
    if not (kind == "deletes_from_one_shard_only" and isinstance(learner, SlicedSeedKeeper))  # it knows no slices
]


@pytest.mark.parametrize(("learner", "kind"), BROKEN, ids=str)
def test_the_sampled_test_catches_a_broken_update(learner, kind):
    options = {"learner": learner, "sampler": IndependentSampler(0.5), "num_shards": 2}
    batches = [[add(5)], [Delete(0)]]
    keys = [RecipeKey.from_seed(draw) for draw in range(2 * DRAWS)]
    wrong = {**options, "updater": broken_update(kind)}
    broken = [_statistics(run(key, range(2), batches, **wrong)) for key in keys[:DRAWS]]
    honest = [_statistics(fresh(key, range(2), batches, **options)) for key in keys[DRAWS:]]
    assert not _same_law(broken, honest)


def _shape(state):
    """The state without the values of the seeds, which are 63 bits and never repeat: ids and what each model saw."""
    return tuple((ids, _seen(model)) for ids, model in state)


def _seen(model):
    if isinstance(model, Kept):
        return model.keys
    if isinstance(model, LookupTable):
        return tuple(sorted(model.labels))
    return tuple(part and tuple(keys for keys, _ in part) for part in model)  # checkpoints, or () for an empty shard


def _statistics(state) -> tuple:
    """What is compared: a digest, the shards' sizes, whether models saw just them, the slices, and who is anywhere."""
    shape = _shape(state)
    digest = crc32(repr(shape).encode()) % CELLS
    sizes = tuple(len(ids) for ids, _ in shape)
    fits = tuple(_num_seen(seen) == len(ids) for ids, seen in shape)
    sliced = tuple(len(keys) for _, seen in shape if seen and isinstance(seen[-1], tuple) for keys in seen[-1])
    return digest, sizes, fits, sliced, tuple(sorted({name for ids, _ in shape for name in ids}))


def _num_seen(seen) -> int:
    if seen and isinstance(seen[-1], tuple):  # checkpoints: the last holds every slice
        return sum(len(keys) for keys in seen[-1])
    return len(seen)


def _same_law(left, right):
    """Exact (Fisher) tests of every value of every statistic, conditional on the values seen in either sample.

    Bonferroni over values, statistics and the 12 generated sequences: false alarm at most 1e-6 over all of them.
    """
    for one, other in zip(zip(*left, strict=True), zip(*right, strict=True), strict=True):
        values = set(one) | set(other)
        level = 1e-6 / (12 * len(left[0]) * len(values))
        for value in values:
            a, b = one.count(value), other.count(value)
            if stats.fisher_exact([[a, len(one) - a], [b, len(other) - b]]).pvalue <= level:
                return False
    return True


@pytest.fixture
def numbers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5))
    return Records.build(X, (X[:, 0] + 0.3 * rng.normal(size=400) > 0).astype(int))


def test_only_touched_shards_are_retrained_and_the_rest_are_the_same_objects(numbers):
    state = learn(numbers, Recipe(ScikitLearner(LogisticRegression()), 20, IndependentSampler(), KEY))
    expected = set(state.shards_of(7)) | set(state.shards_of(8))
    assert expected == {shard for shard, held in enumerate(state.members) if {7, 8} & set(held.tolist())}
    after, report = update(state, [Delete(7), Delete(8)])
    assert set(report.touched) == expected
    assert report.num_retrained == len(expected)
    assert (report.removed, report.added) == (2, 0)
    for shard in range(20):
        assert (after.models[shard] is state.models[shard]) == (shard not in expected)
        assert (after.contents(shard).seed == state.contents(shard).seed) == (shard not in expected)
    assert 7 in state.records


@pytest.mark.parametrize(
    "learner",
    [ScikitLearner(LogisticRegression()), ScikitLearner(SGDClassifier(max_iter=5, tol=None))],
    ids=["logistic", "sgd"],
)
def test_models_are_what_their_contents_give(numbers, learner):
    state = learn(numbers, Recipe(learner, 6, IndependentSampler(0.3), KEY))
    for i in range(5):
        state, _ = update(state, [Delete(i), Add(id=1000 + i, features=np.ones(5), label=i % 2)])
    for shard, model in enumerate(state.models):
        data = state.contents(shard)
        again = learner.fit(data.X, data.y, data.seed)
        np.testing.assert_array_equal(again.estimator.coef_, model.estimator.coef_)


def test_a_sliced_shard_resumes_where_it_was_touched(numbers):
    learner = SlicedScikitLearner(SGDClassifier(), num_slices=5)
    state = learn(numbers, Recipe(learner, 4, IndependentSampler(0.5), KEY))
    first, shard, record = max(
        (int(state.recipe.slices(shard, id_names([record], KEY))[0]), shard, record)
        for record in range(20)
        for shard in state.shards_of(record)
    )
    assert first > 0  # so that there is something to resume from
    after, report = update(state, [Delete(record)])
    old, new = state.models[shard].checkpoints, after.models[shard].checkpoints
    assert [a is b for a, b in zip(old, new, strict=True)] == [i < first for i in range(5)]
    data = after.contents(shard)
    assert state.contents(shard).seeds[:first] == data.seeds[:first]
    assert not set(state.contents(shard).seeds[first:]) & set(data.seeds[first:])
    assert report.slices_trained <= 5 * report.num_retrained
    # The final checkpoint is the one that training from scratch gives.
    estimator = None
    for number, seed in enumerate(data.seeds):
        rows = data.slice_of == number
        if rows.any():
            estimator = after.learner.extend(estimator, data.X[rows], data.y[rows], seed, weights=None)
    np.testing.assert_array_equal(estimator.coef_, new[-1].coef_)


def test_processes_give_the_same_models(numbers):
    recipe = Recipe(ScikitLearner(SGDClassifier(max_iter=5, tol=None)), 7, IndependentSampler(0.4), KEY)
    here, there = learn(numbers, recipe), learn(numbers, recipe, executor=Processes(2))
    for a, b in zip(here.models, there.models, strict=True):
        np.testing.assert_array_equal(a.estimator.coef_, b.estimator.coef_)


def test_progress_counts_every_model(numbers):
    steps: list[int] = []
    learn(numbers, Recipe(LookupTableLearner(), 30, IndependentSampler(), KEY), advance=steps.append)
    assert sum(steps) == 30
    assert len(steps) > 1


class FailsOn:
    """Refuses to train on a shard that holds a marked record."""

    def fit(self, X, y, seed, *, weights=None):
        if (X[:, 0] == 99).any():
            raise RuntimeError("cannot learn from this")
        return Kept((), seed)


def test_a_failing_learner_is_named_with_its_shard_and_changes_nothing(numbers):
    state = learn(numbers, Recipe(FailsOn(), 3, IndependentSampler(1.0), KEY))
    before = (len(state.records), state.models, state.members)
    with pytest.raises(TrainingError, match=r"shard 0.*cannot learn from this") as caught:
        update(state, [Add(id="bad", features=[99, 0, 0, 0, 0], label=0)])
    assert caught.value.shard == 0
    assert (len(state.records), state.models, state.members) == before
    assert "bad" not in state.records


def test_an_unknown_record_stops_the_batch_before_any_training(numbers):
    state = learn(numbers, Recipe(LookupTableLearner(), 3, IndependentSampler(), KEY))
    with pytest.raises(UnknownRecordError, match="-5"):
        update(state, [Delete(1), Delete(-5)])


def test_everything_can_be_deleted_and_empty_shards_abstain():
    state = learn(table(range(5)), Recipe(LookupTableLearner(), 4, IndependentSampler(), KEY))
    state, _ = update(state, [Delete(i) for i in range(5)])
    assert state.count_votes(np.zeros((2, 1))).tolist() == [[0, 0], [0, 0]]
    assert (state.votes(np.zeros((2, 1))) == -1).all()
    state, report = update(state, [add(3)])
    assert state.count_votes(np.full((1, 1), 3.0)).tolist() == [[report.num_retrained, 0]]


def test_storage_of_deleted_records_is_dropped(monkeypatch, numbers):
    monkeypatch.setattr(ensemble, "_DEAD_SLOTS_ALLOWED", 3)
    state = learn(numbers, Recipe(ScikitLearner(LogisticRegression()), 5, IndependentSampler(), KEY))
    for i in range(60):
        state, _ = update(state, [Delete(i)])
    assert state.records.num_slots < 360
    assert state.records.ids() == list(range(60, 400))
    X, _, _ = numbers.gather(numbers.live_slots())
    for shard in range(5):
        held = [state.records.id_of(int(s)) for s in state.members[shard]]
        np.testing.assert_array_equal(state.records.gather(state.members[shard])[0], X[held])


def test_a_pickled_state_holds_nothing_deleted():
    secret = 0.123456789101112
    X = np.arange(20.0).reshape(10, 2)
    X[3] = secret
    records = Records.build(X, [0, 1] * 5, ids=[f"person-{i}" for i in range(10)])
    state = learn(records, Recipe(LookupTableLearner(), 3, IndependentSampler(0.5), KEY))
    assert np.float64(secret).tobytes() in pickle.dumps(state)
    state, _ = update(state, [Delete("person-3")])
    blob = pickle.dumps(state)
    assert np.float64(secret).tobytes() not in blob
    assert b"person-3" not in blob
    again = pickle.loads(blob)
    assert again.records.ids() == state.records.ids()
    np.testing.assert_array_equal(again.votes(X), state.votes(X))


@pytest.mark.parametrize(
    "learner",
    [
        ScikitLearner(KNeighborsClassifier()),
        ScikitLearner(make_pipeline(StandardScaler(), KNeighborsClassifier())),
        AbstainingLearner(KNeighborsClassifier()),  # it would abstain in every shard
    ],
)
def test_weights_are_refused_before_anything_is_trained(learner, monkeypatch):
    monkeypatch.setattr(ensemble, "_train", None)
    records = Records.build(np.zeros((4, 1)), [0, 1, 0, 1], weights=[1.0, 1.0, 1.0, 1.0])
    with pytest.raises(ParameterError, match=r"^KNeighborsClassifier cannot take weights: leave the weights out"):
        learn(records, Recipe(learner, 2))


def test_number_of_shards_must_be_positive(numbers):
    with pytest.raises(ParameterError, match="shards"):
        learn(numbers, Recipe(LookupTableLearner(), 0, IndependentSampler(), KEY))


@pytest.mark.parametrize("is_sliced", [False, True])
@pytest.mark.parametrize("dead_allowed", [1024, 0])
def test_a_follower_is_given_the_next_state_while_it_is_made(is_sliced, dead_allowed, monkeypatch):
    monkeypatch.setattr(ensemble, "_DEAD_SLOTS_ALLOWED", dead_allowed)
    learner = SlicedSeedKeeper() if is_sliced else SeedKeeper()
    state = learn(table(range(12)), Recipe(learner, 6, IndependentSampler(0.5), KEY))
    seen = []

    class Seen:
        def start(self, begun, change):
            assert not seen
            assert begun.models == state.models
            seen.append((begun, change))

        def add(self, shard, model):
            seen.append((shard, model))

    batch = [Delete(3), Delete(7), add(50)]
    done, report = update(state, batch, writer=Seen())
    (begun, change), *models = seen
    assert replace(begun, models=done.models) == done
    assert change is report.change
    assert (change is None) == (dead_allowed == 0)
    assert models == [(shard, done.models[shard]) for shard in report.touched]
    assert contents(done) == contents(update(state, batch)[0])


@pytest.mark.parametrize(("num_shards", "unit", "sizes"), [(20, 4, [4] * 5), (20, 1, [3] * 6 + [2]), (3, 4, [3])])
def test_a_learner_gets_multiples_of_its_shards_at_once(num_shards, unit, sizes):
    seen = []

    class Together(SeedKeeper):
        shards_at_once = unit

        def fit_many(self, shards):
            seen.append(len(shards))
            return [self.fit(data.X, data.y, data.seed) for data in shards]

    learn(table(range(5)), Recipe(Together(), num_shards, IndependentSampler(1.0), KEY))
    assert seen == sizes
