"""Networks: many shards together against one after another the plain way, and one shard's retraining against all.

On a GPU, the fused kernel against the chip's own limit as well. Needs the extra `jax`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from expunge.bench.measurement import Line, Target
from expunge.bench.timing import Progress, Task, race
from expunge.learners.protocol import ShardData

_REPEATS = 3
_PEAK = 989e12  # bfloat16 operations a second of an H100 or H200, by its data sheet


@dataclass(frozen=True, slots=True)
class _Sizes:
    num_models: int
    points: int
    steps: int
    num_shards: int
    shard_points: int
    gpu_models: int
    gpu_steps: int


_FULL = _Sizes(6, 6000, 20, 100, 600, 384, 20)
_QUICK = _Sizes(2, 40, 2, 4, 40, 2, 1)


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """Two lines on a CPU; a line a network more on a GPU."""
    import jax

    sizes = _QUICK if quick else _FULL
    on_gpu = jax.default_backend() == "gpu"
    repeats = 1 if quick else _REPEATS
    with progress("deep", 4 * repeats + (2 * repeats if on_gpu else 0)) as advance:
        lines = [_together(sizes, repeats, advance, quick=quick), _one_of_many(sizes, repeats, advance)]
        if on_gpu:
            lines += [_against_the_chip(name, sizes, repeats, advance) for name in ("MNIST", "CIFAR-10")]
    return lines


def _shards(number: int, points: int, shape: tuple[int, ...]) -> list[ShardData]:
    rng = np.random.default_rng(0)
    return [
        ShardData(
            shard,
            rng.random((points, *shape)).astype(np.float32),
            rng.integers(0, 10, points).astype(np.int32),
            None,
            shard,
        )
        for shard in range(number)
    ]


def _together(sizes: _Sizes, repeats: int, advance: Any, *, quick: bool) -> Line:
    """DP-SGD on the paper's network, by norms; against JAX's convolutions under `vmap(grad)`."""
    from expunge.learners.jax import JaxLearner, PrivateSGD, logistic, paper_network, sgd

    network: Any = logistic(input_shape=(5,)) if quick else paper_network()
    options: dict[str, Any] = {
        "batch_size": 16 if quick else 64,
        "steps": sizes.steps,
        "optimizer": sgd(0.5, momentum=0.9),
        "privacy": PrivateSGD(0.1, 0.4),
        "num_classes": 10,
    }
    ours = JaxLearner(network, **options)
    shards = _shards(sizes.num_models, sizes.points, network.input_shape)
    examples = sizes.num_models * sizes.steps * options["batch_size"]
    train = _plain_training(network, network.apply if quick else plain_scores, options)
    tasks = [
        Task(lambda: ours.fit_many(shards), operations=examples),
        Task(lambda: [train(data) for data in shards], operations=examples),
    ]
    mine, theirs = race(tasks, repeats=repeats, advance=advance)
    return Line.faster(
        f"an example-gradient: {sizes.num_models} models of the MNIST network, {sizes.points} points each, DP-SGD",
        mine,
        "one after another, vmap(grad)",
        theirs,
        target=Target.ratio_at_least(3),
    )


def _one_of_many(sizes: _Sizes, repeats: int, advance: Any) -> Line:
    from expunge.learners.jax import JaxLearner, mlp

    learner = JaxLearner(mlp(hidden=(32,), input_shape=(20,)), epochs=5, batch_size=32, num_classes=10)
    shards = _shards(sizes.num_shards, sizes.shard_points, (20,))
    learner.fit_many(shards[:1])
    tasks = [Task(lambda: learner.fit_many(shards[:1])), Task(lambda: learner.fit_many(shards))]
    one, every = race(tasks, repeats=repeats, advance=advance)
    return Line.cost(
        f"retraining one shard of {sizes.num_shards}",
        one,
        "training them all",
        every,
        target=Target.ratio_at_most(0.03),
    )


def _against_the_chip(name: str, sizes: _Sizes, repeats: int, advance: Any) -> Line:
    """Clipped gradients of many models through the fused kernel; the other side is arithmetic alone at full rate."""
    import jax
    import jax.numpy as jnp

    from expunge.learners.jax import _fused as fused
    from expunge.learners.jax import paper_network

    side, channels, activation = (28, 1, "tanh") if name == "MNIST" else (32, 3, "relu")
    shape = fused.Shape(side, channels, 10, activation)
    network = paper_network(activation=activation, input_shape=(side, side, channels))  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2000, side, side, channels)).astype(np.uint8)
    keys = jax.random.split(jax.random.key(0), sizes.gpu_models)
    weights = fused.native(jax.vmap(lambda key: network.init(key, 10))(keys), shape)
    table = fused.patch_table(images, shape)
    rows = jnp.asarray(rng.integers(0, 2000, (sizes.gpu_models, 64)), jnp.int32)
    labels = jnp.asarray(rng.integers(0, 10, (sizes.gpu_models, 64)), jnp.int32)

    def train(start: Any, table: Any, rows: Any, labels: Any) -> Any:
        def step(_: Any, own: Any) -> Any:
            sums = fused.clipped_sums(shape, table, rows, labels, own, clip_norm=0.1)
            return jax.tree.map(lambda old, total: old - 0.01 * total, own, sums)

        return jax.lax.fori_loop(0, sizes.gpu_steps, step, start)

    examples = sizes.gpu_models * 64 * sizes.gpu_steps
    compiled = jax.jit(train)
    task = Task(lambda: jax.block_until_ready(compiled(weights, table, rows, labels)), operations=examples)
    (mine,) = race([task], repeats=repeats, advance=advance)
    floor = network.example_operations(10)["gradient"] / _PEAK
    return Line.cost(
        f"an example-gradient: {name} network, {sizes.gpu_models} models × 64, fused kernel, bfloat16",
        mine,
        f"its arithmetic at {_PEAK / 1e12:.0f} TFLOP/s",
        [floor] * len(mine),
    )


def _plain_training(network: Any, apply: Any, options: dict[str, Any]) -> Any:
    """DP-SGD as it is usually written: a compiled step, called in a loop, with every example's gradient."""
    import jax
    import jax.numpy as jnp

    from expunge.learners.jax import Functions
    from expunge.learners.jax._gradients import clipped_one_by_one, cross_entropy
    from expunge.learners.jax._program import add_noise

    plain = Functions(lambda key: network.init(key, 10), apply, network.input_shape)
    batch_size, privacy = options["batch_size"], options["privacy"]

    def step(parameters: Any, velocity: Any, x: Any, y: Any, key: Any) -> Any:
        present = jnp.ones(batch_size)
        total = clipped_one_by_one(plain, cross_entropy, parameters, x, y, present, privacy.clip_norm)
        noisy = add_noise(total, key, privacy.clip_norm * privacy.noise_multiplier)
        velocity = jax.tree.map(lambda old, new: 0.9 * old + new / batch_size, velocity, noisy)
        return jax.tree.map(lambda old, move: old - 0.5 * move, parameters, velocity), velocity

    def begin(seed: Any) -> Any:
        parameters = plain.init(jax.random.key(seed), 10)
        return parameters, jax.tree.map(jnp.zeros_like, parameters)

    compiled, started = jax.jit(step), jax.jit(begin)

    def train(data: ShardData) -> Any:
        rng = np.random.default_rng(data.seed)
        state = started(data.seed)
        for number in range(options["steps"]):
            rows = rng.permutation(len(data.y))[:batch_size]
            state = compiled(*state, data.X[rows], data.y[rows], jax.random.key(number))
        return jax.block_until_ready(state[0])

    return train


def plain_scores(parameters: Any, x: Any) -> Any:
    """The paper's network from JAX's own convolution and pooling, as its listing has it."""
    import jax
    import jax.numpy as jnp

    def convolve(x: Any, layer: Any, padding: str) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        out = jax.lax.conv_general_dilated(x, layer["weights"], (2, 2), padding, dimension_numbers=numbers)
        return jnp.tanh(out + layer["bias"])

    def pool(x: Any) -> Any:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "VALID")

    first, second, third, fourth = [layer for layer in parameters if layer]
    x = pool(convolve(x, first, "SAME"))
    x = pool(convolve(x, second, "VALID")).reshape(x.shape[0], -1)
    x = jnp.tanh(x @ third["weights"] + third["bias"])
    return x @ fourth["weights"] + fourth["bias"]
