"""A model is a function of its own rows and seed, to the bit; batches, noise, checks and storage do what they say."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from expunge.core.errors import ExpungeError, InputError, ParameterError, TrainingError
from expunge.core.prf import RecipeKey
from expunge.core.records import Delete, Records
from expunge.training.ensemble import learn, update
from expunge.training.environment import Environment
from expunge.training.learners.jax import (
    Equinox,
    JaxLearner,
    JaxModel,
    Optimizer,
    PrivateSGD,
    SlicedJaxLearner,
    Validation,
    adam,
    logistic,
    mlp,
    same_parameters,
    sgd,
)
from expunge.training.learners.jax.model import JaxVoter, vote_program
from expunge.training.learners.jax.rows import row_blocks
from expunge.training.learners.protocol import ABSTAIN, Abstainer, ShardData, fit_many
from expunge.training.learners.scikit import ConstantModel
from expunge.training.recipe import Recipe
from expunge.training.sampling import PartitionSampler

MakeLearner = Callable[..., JaxLearner]
MakeShard = Callable[..., ShardData]


@pytest.mark.parametrize("models_at_once", [1, 3])
def test_a_model_does_not_depend_on_its_companions(
    make_learner: MakeLearner, make_shard: MakeShard, models_at_once: int
) -> None:
    learner = make_learner(models_at_once=models_at_once)
    shards = [make_shard(number, size) for number, size in enumerate([70, 75, 66, 40, 71])]
    together = learner.fit_many(shards)
    backwards = learner.fit_many(shards[::-1])[::-1]
    for shard, first, second in zip(shards, together, backwards, strict=True):
        alone = learner.fit(shard.X, shard.y, shard.seed)
        assert same_parameters(first.parameters, alone.parameters)
        assert same_parameters(second.parameters, alone.parameters)
    assert not same_parameters(together[0].parameters, together[1].parameters)


def test_trained_together_or_alone_to_rounding(make_learner: MakeLearner, make_shard: MakeShard) -> None:
    shard = make_shard(1)
    one, many = (make_learner(models_at_once=number).fit(shard.X, shard.y, shard.seed) for number in (1, 3))
    for left, right in zip(jax.tree.leaves(one.parameters), jax.tree.leaves(many.parameters), strict=True):
        assert np.allclose(left, right, atol=1e-4)


def test_the_state_after_deletions_is_a_fresh_training_of_the_touched_shards(make_learner: MakeLearner) -> None:
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 200)
    X = (rng.normal(size=(200, 64)) + y[:, None]).astype(np.float32)
    records = Records.build(X, y)
    learner = make_learner(num_classes=None)
    state = learn(records, Recipe(learner, 5, PartitionSampler(), RecipeKey.from_seed(1)))
    doomed = [records.ids()[number] for number in (3, 50)]
    after, report = update(state, [Delete(record) for record in doomed])
    assert 1 <= len(report.touched) < 5
    bound: Any = after.learner
    for shard in range(5):
        data: Any = after.contents(shard)
        fresh = bound.fit(data.X, data.y, data.seed)
        model: Any = after.models[shard]
        assert same_parameters(model.parameters, fresh.parameters)
        assert (model is state.models[shard]) == (shard not in report.touched)


def test_an_update_compiles_nothing_new(make_learner: MakeLearner, make_shard: MakeShard) -> None:
    learner = make_learner()
    learner.fit_many([make_shard(1, 70)])
    from expunge.training.learners.jax.program import training_program

    program: Any = training_program(learner.recipe, 80, 1, resumes=False)
    compiled = program._cache_size()
    assert compiled == 1
    learner.fit_many([make_shard(2, 69), make_shard(3, 80)])
    assert program._cache_size() == compiled


def test_one_class_is_a_constant_and_no_rows_abstain(make_learner: MakeLearner, make_shard: MakeShard) -> None:
    learner = make_learner(privacy=None)
    full, single = make_shard(1), make_shard(2, 20, classes=1)
    empty = ShardData(3, full.X[:0], full.y[:0], None, 7)
    models = fit_many(learner, [empty, single, full])
    assert isinstance(models[0], Abstainer)
    assert models[1] == ConstantModel(0)
    voter = learner.make_voter(models, 3)
    votes = voter.votes(full.X)
    assert (votes[:, 0] == ABSTAIN).all()
    assert (votes[:, 1] == 0).all()
    assert np.array_equal(votes[:, 2], models[2].predict(full.X))
    counts = voter.count(full.X)
    assert (counts.sum(axis=1) == 2).all()
    assert np.array_equal(counts.argmax(axis=1) == 0, counts[:, 0] >= 1)


def test_it_learns(make_learner: MakeLearner, make_shard: MakeShard) -> None:
    shard = make_shard(3, 300)
    learner = make_learner(privacy=None, steps=None, epochs=20, optimizer=adam(0.01))
    model = learner.fit(shard.X, shard.y, 1)
    assert (model.predict(shard.X) == shard.y).mean() > 0.9


def test_any_row_is_answered_alike_in_any_company(make_learner: MakeLearner, make_shard: MakeShard) -> None:
    shard, asked = make_shard(3), make_shard(4, 300).X
    model = make_learner().fit(shard.X, shard.y, 1)
    assert isinstance(model, JaxModel)
    scores = model.scores(asked)
    assert np.array_equal(scores[17:18], model.scores(asked[17:18]))
    assert model.predict(asked[:0]).shape == (0,)


def reference_training(learner: JaxLearner, shard: ShardData, momentum: float, rate: float) -> Any:
    """DP-SGD step by step in plain Python, with the batches and noise of the shard's key."""
    from expunge.training.learners.jax.gradients import clipped_one_by_one, cross_entropy
    from expunge.training.learners.jax.learner import raw_key
    from expunge.training.learners.jax.program import add_noise
    from expunge.training.learners.jax.rows import capacity, shuffled_orders

    assert learner.privacy is not None
    assert learner.steps is not None
    raw = jnp.array(raw_key(shard.seed), jnp.uint32)
    size, batch, privacy = len(shard.y), learner.batch_size, learner.privacy

    @jax.jit
    def begin(raw: Any) -> tuple[Any, ...]:
        init_key, stream = jax.random.split(jax.random.wrap_key_data(raw, impl="threefry2x32"))
        orders = shuffled_orders(jax.random.fold_in(stream, 0), jnp.int32(size), capacity(size), 9)
        return learner.architecture.init(init_key, 3), orders, jax.random.fold_in(stream, 1)

    parameters, orders, noise_key = begin(raw)
    velocity = jax.tree.map(jnp.zeros_like, parameters)

    @jax.jit  # one step by hand: the loop, the batches and the models' axis are what the program adds
    def move(parameters: Any, velocity: Any, x: Any, y: Any, step: Any) -> tuple[Any, Any]:
        present = jnp.ones(batch)
        total = clipped_one_by_one(learner.architecture, cross_entropy, parameters, x, y, present, privacy.clip_norm)
        noisy = add_noise(total, jax.random.fold_in(noise_key, step), privacy.clip_norm * privacy.noise_multiplier)
        velocity = jax.tree.map(lambda old, new: momentum * old + new / batch, velocity, noisy)
        return jax.tree.map(lambda old, by: old - rate * by, parameters, velocity), velocity

    for step in range(learner.steps):
        epoch, number = divmod(step, size // batch)
        rows = np.asarray(orders[epoch])[number * batch : (number + 1) * batch]
        parameters, velocity = move(parameters, velocity, shard.X[rows][..., None], shard.y[rows], step)
    return parameters


def test_the_program_is_dp_sgd_step_by_step(make_learner: MakeLearner, make_shard: MakeShard) -> None:
    learner, shard = make_learner(), make_shard(4)
    trained: Any = learner.fit(shard.X, shard.y, shard.seed)
    expected = reference_training(learner, shard, 0.9, 0.2)
    for left, right in zip(jax.tree.leaves(trained.parameters), jax.tree.leaves(expected), strict=True):
        assert np.allclose(left, right, atol=2e-5)


def test_the_best_check_is_returned_and_a_tie_goes_to_the_later(
    make_learner: MakeLearner, make_shard: MakeShard
) -> None:
    shard, public = make_shard(5, 90), make_shard(6, 41)
    every = 3
    options: dict[str, Any] = {"privacy": PrivateSGD(0.5, 8.0), "network": logistic(input_shape=(8, 8))}
    trainers = [make_learner(steps=steps, **options) for steps in range(every, 10, every)]
    for seed in range(20):
        stages = [learner.fit(shard.X, shard.y, seed) for learner in trainers]
        accuracies = [(model.predict(public.X) == public.y).mean() for model in stages]
        best = max(range(len(stages)), key=lambda number: (accuracies[number], number))
        if 0 < best < len(stages) - 1:
            break  # a chosen check can be told from the first and the last
    else:
        pytest.fail("every training got better until its end")
    validation = Validation(public.X, public.y, every=every)
    chosen: Any = make_learner(steps=9, validation=validation, **options).fit(shard.X, shard.y, seed)
    expected: Any = stages[best]
    for left, right in zip(jax.tree.leaves(chosen.parameters), jax.tree.leaves(expected.parameters), strict=True):
        assert np.allclose(left, right, atol=1e-5)


def test_models_survive_storage_to_the_bit(make_learner: MakeLearner, make_shard: MakeShard) -> None:
    learner, shard = make_learner(), make_shard(7)
    model: Any = learner.fit(shard.X, shard.y, 1)
    stored = learner.dump_model(model)
    assert all(isinstance(value, np.ndarray | int | float | str) for value in stored.values())
    loaded: Any = pickle.loads(pickle.dumps(learner)).load_model(stored)
    assert same_parameters(loaded.parameters, model.parameters)
    for simple in (Abstainer(), ConstantModel(2)):
        assert learner.load_model(learner.dump_model(simple)) == simple
    with pytest.raises(InputError, match="must have the shape"):
        make_learner(num_classes=4).load_model(stored)
    with pytest.raises(InputError, match="another network"):
        learner.load_model({**stored, "weights[99]": np.zeros(1)})
    with pytest.raises(InputError, match="kind"):
        learner.load_model({"kind": "pickle"})


@pytest.mark.parametrize("is_cumulative", [True, False])
def test_slices_resume_from_a_checkpoint_to_the_bit(
    make_learner: MakeLearner, make_shard: MakeShard, is_cumulative: bool
) -> None:
    from expunge.training.learners.slices import SlicedShard, fit_slices

    shard = make_shard(8, 90)
    sliced = SlicedJaxLearner(make_learner(steps=4, network=logistic(input_shape=(8, 8))), 3, is_cumulative)
    slice_of = np.random.default_rng(0).integers(0, 3, 90)
    full = fit_slices(sliced, SlicedShard(0, shard.X, shard.y, None, slice_of, (1, 2, 3)))
    again = fit_slices(
        sliced, SlicedShard(0, shard.X, shard.y, None, slice_of, (1, 2, 3), first=2, checkpoints=full.checkpoints)
    )
    assert same_parameters(full.checkpoints[2], again.checkpoints[2])
    assert not same_parameters(full.checkpoints[1], full.checkpoints[2])
    loaded: Any = sliced.load_model(sliced.dump_model(full))
    assert same_parameters(loaded.checkpoints, full.checkpoints)
    assert np.array_equal(sliced.make_voter([full], 3).votes(shard.X)[:, 0], loaded.predict(shard.X))


def test_weights_count(make_shard: MakeShard) -> None:
    shard = make_shard(9, 60)
    learner = JaxLearner(logistic(input_shape=(8, 8)), steps=30, batch_size=32, num_classes=3)
    only_twos = learner.fit(shard.X, shard.y, 1, weights=np.where(shard.y == 2, 1.0, 1e-9))
    evenly = learner.fit(shard.X, shard.y, 1)
    assert (only_twos.predict(shard.X) == 2).mean() > 0.8 > (evenly.predict(shard.X) == 2).mean()
    with pytest.raises(ParameterError, match="sample weights"):
        JaxLearner(logistic(input_shape=(8, 8)), steps=1, num_classes=3, privacy=PrivateSGD(1.0, 1.0)).fit(
            shard.X, shard.y, 1, weights=np.ones(60)
        )


def test_other_ways_to_give_a_network(make_shard: MakeShard) -> None:
    import equinox

    shard = make_shard(10, 50)
    inner = logistic(input_shape=(8, 8))

    class Linen:
        """What a Flax module looks like from outside."""

        def init(self, key: Any, x: Any) -> Any:
            return {"params": inner.init(key, 3)}

        def apply(self, variables: Any, x: Any) -> Any:
            return inner.apply(variables["params"], x)

    ways = [
        (lambda key: inner.init(key, 3), inner.apply),
        Linen(),
        lambda key: equinox.nn.Sequential([equinox.nn.Lambda(jnp.ravel), equinox.nn.Linear(64, 3, key=key)]),
    ]
    expected: Any = JaxLearner(inner, steps=5, batch_size=8, num_classes=3).fit(shard.X, shard.y, 1)
    for number, way in enumerate(ways):
        learner = JaxLearner(
            way, input_shape=(8, 8), steps=5, batch_size=8, num_classes=3, optimizer=optax.sgd(0.1, momentum=0.9)
        )
        model: Any = learner.fit(shard.X, shard.y, 1)
        if number < 2:
            leaves = zip(jax.tree.leaves(model.parameters), jax.tree.leaves(expected.parameters), strict=True)
            assert all(np.allclose(left, right, atol=1e-6) for left, right in leaves)
        else:
            assert isinstance(learner.architecture, Equinox)
            assert set(model.predict(shard.X)) <= {0, 1, 2}


def test_memory_is_bounded_by_the_setting(make_learner: MakeLearner, make_shard: MakeShard) -> None:
    shard = make_shard(1)
    network = logistic(input_shape=(8, 8))
    free = make_learner(network=network, privacy=None, models_at_once=4)
    needed = [free._bytes(models, 80, shard.X) for models in (1, 2, 4)]
    assert needed[0] < needed[1] < needed[2]
    tight = make_learner(network=network, privacy=None, models_at_once=4, max_device_memory=needed[1])
    assert tight.models_in_program(80, shard.X) == 2
    with pytest.raises(ParameterError, match="max_device_memory"):
        make_learner(network=network, privacy=None, max_device_memory=1000).fit(shard.X, shard.y, 1)


def test_going_on_from_weights_is_bounded_too(make_learner: MakeLearner, make_shard: MakeShard) -> None:
    """Its program takes them as well."""
    shard = make_shard(1)
    network = logistic(input_shape=(8, 8))
    free = make_learner(network=network, privacy=None, models_at_once=4)
    [start] = free.train([shard], 80)
    afresh, resumed = (free._bytes(4, 80, shard.X, begin) for begin in (None, start))
    assert afresh < resumed
    tight = make_learner(network=network, privacy=None, models_at_once=4, max_device_memory=afresh)
    assert (tight.models_in_program(80, shard.X), tight.models_in_program(80, shard.X, start)) == (4, 2)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_voting_is_bounded_by_the_setting(
    make_learner: MakeLearner, make_shard: MakeShard, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """Networks are asked in parts, the last of them filled up; elsewhere than on a CPU some of them side by side."""
    learner = make_learner(network=logistic(input_shape=(8, 8)), privacy=None)
    models = learner.fit_many([make_shard(seed) for seed in range(7)])
    expected = np.stack([model.predict(make_shard(9).X) for model in models], axis=1)
    vote_program.cache_clear()
    monkeypatch.setattr("jax.default_backend", lambda: backend)
    monkeypatch.setattr("expunge.training.learners.jax.model.MODELS_AT_ONCE", 3)
    whole = JaxVoter(models, 3)
    assert np.array_equal(whole.votes(make_shard(9).X), expected)
    [(block, _)] = row_blocks(make_shard(9).X)
    bounded = JaxVoter(models, 3, memory=whole._bytes(whole._program, 7, block) - 1)
    assert np.array_equal(bounded.votes(make_shard(9).X), expected)
    assert set(bounded._fitting.values()) == {3}
    with pytest.raises(ParameterError, match="bytes to ask one model, got 1000"):
        JaxVoter(models, 3, memory=1000).votes(make_shard(9).X)
    vote_program.cache_clear()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"steps": None}, "steps or epochs"),
        ({"epochs": 2}, "steps or epochs"),
        ({"steps": 0}, "steps"),
        ({"num_classes": 1}, "num_classes"),
        ({"input_scale": 0.0}, "input_scale"),
        ({"models_at_once": 0}, "models_at_once"),
        ({"max_device_memory": 0}, "max_device_memory"),
        ({"loss": "mse"}, "loss must be a function of scores and label, got 'mse'"),
        ({"optimizer": "adam"}, "must be an Optimizer or an Optax transformation, got 'adam'"),
        ({"optimizer": Optimizer("adamx", {})}, "Optax has no optimiser 'adamx'"),
        ({"optimizer": Optimizer("adam", {"lr": 0.1})}, "'adam' of Optax refuses its arguments"),
        ({"optimizer": Optimizer("global_norm", {"updates": 1.0})}, "is no optimiser"),
    ],
)
def test_impossible_options(make_learner: MakeLearner, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        make_learner(**options)


def test_what_is_missing_is_named(make_learner: MakeLearner, make_shard: MakeShard) -> None:
    shard = make_shard(1)
    with pytest.raises(ParameterError, match="num_classes"):
        make_learner(num_classes=None).fit(shard.X, shard.y, 1)
    with pytest.raises(ParameterError, match="input_shape"):
        JaxLearner((lambda key: None, lambda p, x: x), steps=1)
    with pytest.raises(ParameterError, match="the network must be"):
        JaxLearner("resnet", input_shape=(2,), steps=1)
    with pytest.raises(InputError, match="numbers"):
        make_learner().fit(np.array([["a"], ["b"]], dtype=object), np.array([0, 1]), 1)
    with pytest.raises(ParameterError, match="seed"):
        make_learner().fit(shard.X, shard.y, -1)


def test_what_does_not_fit_the_network_is_named(make_learner: MakeLearner, make_shard: MakeShard) -> None:
    """JAX itself clamps a label that has no score, and trains on."""
    shard = make_shard(1)
    with pytest.raises(InputError, match=r"the shape \(7, 8\) do not fit the network's input_shape \(8, 8, 1\)"):
        make_learner().fit(shard.X[:, :7], shard.y, 1)
    with pytest.raises(InputError, match="got 70 rows and 69 labels"):
        make_learner().fit(shard.X, shard.y[:69], 1)
    with pytest.raises(InputError, match="labels must be codes from 0 to 1, got 0 to 2"):
        make_learner(num_classes=2).fit(shard.X, shard.y, 1)
    too_few = JaxLearner(
        (lambda key: jnp.zeros((64, 2)), lambda p, x: x.reshape(-1, 64) @ p), input_shape=(8, 8), steps=1, num_classes=3
    )
    with pytest.raises(ParameterError, match=r"must give 3 scores an example.* gives the shape \(2, 2\)"):
        too_few.fit(shard.X, shard.y, 1)
    with pytest.raises(ParameterError, match="input_shape must be a tuple of positive sizes, got 64"):
        mlp(input_shape=64)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="the number of units must be an integer from 1 to 2,147,483,647, got -3"):
        mlp(hidden=(-3,), input_shape=(64,))
    with pytest.raises(ParameterError, match="slices"):
        SlicedJaxLearner(make_learner(), num_slices="3")  # type: ignore[arg-type]


def test_no_rows_no_opinion(make_learner: MakeLearner) -> None:
    assert make_learner().fit(np.zeros((0, 8, 8)), np.zeros(0, dtype=np.int64), 1) == Abstainer()


def test_a_training_that_diverges_is_an_error(make_learner: MakeLearner, make_shard: MakeShard) -> None:
    shard = make_shard(1)
    with pytest.raises(ExpungeError, match="training diverged"):
        make_learner(optimizer=sgd(1e30), privacy=None).fit(shard.X, shard.y, 1)


def test_an_optimizer_by_name_takes_a_dictionary(make_learner: MakeLearner, make_shard: MakeShard) -> None:
    shard = make_shard(1)
    named = make_learner(optimizer=Optimizer("adam", {"learning_rate": 0.01}))
    assert named.optimizer == adam(0.01)
    assert isinstance(named.fit(shard.X, shard.y, 1), JaxModel)


def test_a_small_shard_is_one_batch(make_learner: MakeLearner, make_shard: MakeShard) -> None:
    shard = make_shard(2, 5)
    learner = make_learner(steps=None, epochs=3, privacy=None)
    first: Any = learner.fit(shard.X, shard.y, 3)
    changed = shard.X.copy()
    changed[4] += 1.0
    second: Any = learner.fit(changed, shard.y, 3)
    assert not same_parameters(first.parameters, second.parameters)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(first.parameters))
    assert mlp(input_shape=(3,)) == mlp(input_shape=(3,))


def test_shards_come_in_numbers_that_fill_programs_and_cores() -> None:
    cores = os.cpu_count() or 1
    usual = JaxLearner(logistic(input_shape=(8,)), steps=1)
    assert usual.shards_at_once == cores
    assert JaxLearner(logistic(input_shape=(8,)), steps=1, models_at_once=3).shards_at_once == 3 * cores
    assert JaxLearner(logistic(input_shape=(8,)), steps=1, max_device_memory=1 << 30).shards_at_once == 1


def test_trained_weights_do_not_pile_up_on_the_device(make_shard: MakeShard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound on memory holds however many shards there are."""
    learner = JaxLearner(
        mlp(hidden=(500,), input_shape=(8, 8)), steps=1, num_classes=3, max_device_memory=4_000_000, models_at_once=1
    )
    shards = [make_shard(number) for number in range(12)]
    own = sum(leaf.nbytes for leaf in jax.tree.leaves(learner.train(shards[:1], 80)[0]))
    alive: list[int] = []
    batch = learner._batch

    def watched(*given: Any) -> Any:
        alive.append(sum(array.nbytes for array in jax.live_arrays() if array.shape == (1, 64, 500)))
        return batch(*given)

    monkeypatch.setattr(JaxLearner, "_batch", lambda self, *given: watched(*given))
    learner.train(shards, 80)
    assert len(alive) == 12
    assert max(alive) - min(alive) < own


@pytest.mark.parametrize("is_cumulative", [True, False])
def test_slices_of_many_shards_are_trained_together(
    make_learner: MakeLearner, make_shard: MakeShard, monkeypatch: pytest.MonkeyPatch, is_cumulative: bool
) -> None:
    """In programs of four models; with the same bits as one after another, also where some begin later."""
    from expunge.training.learners.slices import SlicedShard, fit_slices, fit_slices_of_many

    learner = make_learner(steps=3, network=logistic(input_shape=(8, 8)), models_at_once=4)
    sliced = SlicedJaxLearner(learner, 3, is_cumulative)
    rng = np.random.default_rng(0)
    shards = [
        SlicedShard(number, one.X, one.y, None, rng.integers(0, 3, 70), tuple(rng.integers(1 << 60, size=3).tolist()))
        for number, one in enumerate(make_shard(number, 70) for number in range(5))
    ]
    alone = [fit_slices(sliced, shard) for shard in shards]
    shards[1] = replace(shards[1], first=2, checkpoints=alone[1].checkpoints)
    shards[3] = replace(shards[3], slice_of=np.full(70, 1))  # nothing in its first slice, and nothing new in its last
    alone[3] = fit_slices(sliced, shards[3])
    sizes: list[int] = []
    train = JaxLearner.train

    def counted(self: JaxLearner, own: Any, *given: Any) -> Any:
        sizes.append(len(own))
        return train(self, own, *given)

    monkeypatch.setattr(JaxLearner, "train", counted)
    together = fit_slices_of_many(sliced, shards)
    assert sum(sizes) == 3 + 4 + 4
    assert len(sizes) <= 9
    for one, other in zip(alone, together, strict=True):
        for first, second in zip(one.checkpoints, other.checkpoints, strict=True):
            assert (first is None) == (second is None)
            assert first is None or same_parameters(first, second)
    assert sliced.shards_at_once == learner.shards_at_once


def test_a_slice_that_cannot_be_trained_names_its_shard(make_learner: MakeLearner, make_shard: MakeShard) -> None:
    from expunge.training.learners.slices import SlicedShard, fit_slices_of_many

    sliced = SlicedJaxLearner(make_learner(steps=1, network=logistic(input_shape=(8, 8))), 1)
    shards = [
        SlicedShard(number, one.X, one.y + 9 * (number == 2), None, np.zeros(70, np.int64), (number,))
        for number, one in enumerate(make_shard(number, 70) for number in range(3))
    ]
    with pytest.raises(TrainingError, match="slice 0 of shard 2 failed: InputError: labels must be codes"):
        fit_slices_of_many(sliced, shards)


def test_what_does_not_fit_a_shard_is_one_line(make_learner: MakeLearner, make_shard: MakeShard) -> None:
    shard, learner = make_shard(1), make_learner(privacy=None)
    for X, y, weights, words in (
        (shard.X, shard.y[:, None], None, r"one label a row, got labels of the shape \(70, 1\)"),
        (shard.X, shard.y, np.ones(3), r"a weight a row, got 70 rows and weights of the shape \(3,\)"),
        (shard.X.reshape(70, 4, 16), shard.y, None, r"rows of the shape \(4, 16\) do not fit"),
    ):
        with pytest.raises(InputError, match=words):
            learner.fit(X, y, 1, weights=weights)
    model: Any = learner.fit(shard.X.reshape(70, 64), shard.y, 1)
    with pytest.raises(InputError, match=r"rows of the shape \(5,\) do not fit"):
        model.predict(np.zeros((2, 5)))
    assert "parameters" not in repr(model)


@pytest.mark.parametrize("name", ["lbfgs", "polyak_sgd"])
def test_an_optimiser_that_wants_more_than_gradients_is_refused(
    make_learner: MakeLearner, make_shard: MakeShard, name: str
) -> None:
    arguments = {"max_learning_rate": 1.0} if name == "polyak_sgd" else {"learning_rate": 0.1}
    shard = make_shard(1)
    with pytest.raises(ParameterError, match="cannot make a step from gradients and weights alone: TypeError"):
        make_learner(optimizer=Optimizer(name, arguments)).fit(shard.X, shard.y, 1)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda scores, label: scores, r"must be a number, got \(3,\)"),
        (lambda scores: scores[0], "the loss fails on the scores and the label of one example: TypeError"),
    ],
)
def test_a_loss_that_is_none(make_learner: MakeLearner, make_shard: MakeShard, loss: Any, words: str) -> None:
    shard = make_shard(1)
    with pytest.raises(ParameterError, match=words):
        make_learner(loss=loss).fit(shard.X, shard.y, 1)


def test_on_processors_their_number_belongs_to_the_environment(monkeypatch):
    """XLA divides sums by it: with one processor and with two a wide network has other bits."""
    learner = JaxLearner(logistic(input_shape=(4,)), epochs=1)
    here = Environment.here(learner)
    assert Environment.here(learner) == here
    if jax.default_backend() != "cpu":
        assert "jax processors" not in dict(here.facts)
        return
    now = int(dict(here.facts)["jax processors"])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(now + 3)), raising=False)
    assert Environment.here(learner).differences(here) == (f"jax processors {now} -> {now + 3}",)


def test_settings_that_decide_bits_belong_to_the_environment():
    learner = JaxLearner(logistic(input_shape=(4,)), epochs=1)
    here = Environment.here(learner)
    with jax.default_matmul_precision("bfloat16"):
        (change,) = Environment.here(learner).differences(here)
    assert change.startswith("jax settings ")
    assert change.endswith("default_matmul_precision bfloat16")
