"""Networks: many shards together against one after another the plain way, and one shard's retraining against all.

On a GPU, the lines of `expunge_lab.bench.kernel` as well. Needs the extra `jax`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Any

import numpy as np

from expunge.training.learners.protocol import ShardData
from expunge_lab.bench.measurement import Advance, Line, Progress, Target, Task, race

_REPEATS = 3


@dataclass(frozen=True, slots=True)
class _Sizes:
    num_models: int
    points: int
    steps: int
    num_shards: int
    shard_points: int
    calls: int  # of one shard's retraining in a repeat, so that the clock does not matter


_FULL = _Sizes(6, 6000, 93, 100, 600, 20)  # 93 batches of 64 are an epoch of 6,000 points
_QUICK = _Sizes(2, 40, 2, 4, 40, 1)
_ONE_OF_MANY = Target.ratio_at_most(0.012)
_ONE_OF_MANY_ON_GPU = Target.ratio_at_most(0.02)


def require_extra() -> None:
    """A one-line error where JAX is not installed."""
    import expunge.training.learners.jax  # noqa: F401


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """Together against one after another, one shard against all; on a GPU the kernels as well."""
    import jax

    sizes = _QUICK if quick else _FULL
    on_gpu = jax.default_backend() == "gpu"
    repeats = 1 if quick else _REPEATS
    with progress("deep", (7 if on_gpu else 5) * repeats) as advance:
        lines = _together(sizes, repeats, advance, quick=quick, on_gpu=on_gpu)
        lines += (_one_of_many_on_gpu if on_gpu else _one_of_many)(sizes, repeats, advance)
    return [*lines, *_kernels(progress, quick=quick)] if on_gpu else lines


def _kernels(progress: Progress, *, quick: bool) -> list[Line]:
    from expunge_lab.bench import kernel

    with progress("kernel", kernel.num_steps(quick=quick)) as advance:
        return kernel.lines(quick=quick, advance=advance)


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


def _together(sizes: _Sizes, repeats: int, advance: Advance, *, quick: bool, on_gpu: bool) -> list[Line]:
    """DP-SGD on the paper's network, by norms; against JAX's convolutions under `vmap(grad)`.

    On a CPU also against what the arithmetic takes at the rate of one large product, measured in turns with it.
    """
    from expunge.training.learners.jax import JaxLearner, PrivateSGD, logistic, paper_network, sgd

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
    if not on_gpu:
        tasks.append(_large_product(32 if quick else 1024))
    mine, theirs, *products = race(tasks, repeats=repeats, advance=advance)
    what = f"an example-gradient: {sizes.num_models} models of the MNIST network, {sizes.points:,} points each, DP-SGD"
    target = Target.ratio_at_least(3)
    lines = [Line.faster(what, mine, "one after another, vmap(grad)", theirs, target=target)]
    operations = network.example_operations(10)["gradient"]
    for seconds in products:
        rate = f"{1e-9 / median(seconds):.0f} GFLOP/s, a large product's rate"
        floor = [operations * one for one in seconds]
        lines.append(Line.cost("the same", mine, f"its arithmetic at {rate}", floor))
    return lines


def _large_product(size: int) -> Task:
    """One floating-point operation of a product of square float32 matrices."""
    import jax

    left, right = (jax.random.normal(jax.random.key(number), (size, size)) for number in range(2))
    multiply = jax.jit(lambda left, right: left @ right)
    return Task(lambda: jax.block_until_ready(multiply(left, right)), operations=2 * size**3)


def _one_of_many(sizes: _Sizes, repeats: int, advance: Advance) -> list[Line]:
    """Processor time, which is what a training costs; and wall time, in which all shards use all cores."""
    from expunge.training.learners.jax import JaxLearner, mlp

    learner = JaxLearner(mlp(hidden=(32,), input_shape=(20,)), epochs=5, batch_size=32, num_classes=10)
    shards = _shards(sizes.num_shards, sizes.shard_points, (20,))

    def retrain() -> None:
        for _ in range(sizes.calls):
            learner.fit_many(shards[:1])

    processor = _Processor()
    tasks = [
        Task(lambda: processor.watch("one", sizes.calls, retrain), operations=sizes.calls, repeatable=False),
        Task(lambda: processor.watch("all", 1, lambda: learner.fit_many(shards)), repeatable=False),
    ]
    for task in tasks:  # compiles
        task.run()
    processor.seconds.clear()
    one, every = race(tasks, repeats=repeats, advance=advance)
    what = f"retraining one shard of {sizes.num_shards}, an MLP on {sizes.shard_points} points each"
    used = processor.seconds
    return [
        Line.cost(f"{what}: processor time", used["one"], "training them all", used["all"], target=_ONE_OF_MANY),
        Line.cost(f"{what}: wall time", one, "training them all", every),
    ]


def _one_of_many_on_gpu(sizes: _Sizes, repeats: int, advance: Advance) -> list[Line]:
    """With programs of one model, as by default, and of more: all are trained faster, and one more slowly."""
    from expunge.training.learners.jax import JaxLearner, PrivateSGD, paper_network, sgd

    shards = _shards(sizes.num_shards, sizes.shard_points, (28, 28, 1))

    def measure(models_at_once: int, words: str, target: Target | None) -> Line:
        learner = JaxLearner(
            paper_network(),
            batch_size=64,
            steps=sizes.steps,
            optimizer=sgd(0.5, momentum=0.9),
            privacy=PrivateSGD(0.1, 0.4),
            num_classes=10,
            models_at_once=models_at_once,
        )
        tasks = [Task(lambda: learner.fit_many(shards[:1])), Task(lambda: learner.fit_many(shards))]
        one, every = race(tasks, repeats=repeats, advance=advance)
        what = f"retraining one shard of {sizes.num_shards}, the MNIST network, {words}"
        return Line.cost(what, one, "training them all", every, target=target)

    return [
        measure(1, "one model a program", _ONE_OF_MANY_ON_GPU),
        measure(4, "4 models a program", None),
        measure(16, "16 models a program", None),
    ]


class _Processor:
    """Processor seconds of an operation of everything it has watched."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def watch(self, name: str, operations: int, run: Callable[[], object]) -> None:
        """Run it, and note what it took."""
        began = process_time()
        run()
        self.seconds.setdefault(name, []).append(max(process_time() - began, 1e-9) / operations)


def _plain_training(network: Any, apply: Any, options: dict[str, Any]) -> Any:
    """DP-SGD as it is usually written: a compiled step, called in a loop, with every example's gradient."""
    import jax
    import jax.numpy as jnp

    from expunge.training.learners.jax import Functions
    from expunge.training.learners.jax.gradients import clipped_one_by_one, cross_entropy
    from expunge.training.learners.jax.program import add_noise

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
