"""The paper's network on a GPU: the fused kernel, layer by layer, forward passes, checks, and whole trials.

Needs the extra `jax`, and MNIST for the trials. Elsewhere than on a GPU the kernel is interpreted, which only `quick`
sizes are for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from expunge.core.errors import InputError
from expunge.training.learners.jax import Network, paper_network
from expunge.training.learners.jax.gradients import clipped_sum, cross_entropy
from expunge_lab import kernels as fused
from expunge_lab.bench.measurement import Advance, Line, Target, Task, race
from expunge_lab.reproduction import Experiment, Pictures, Row, load_pictures, table_rows
from expunge_lab.reproduction.white_box import FusedEngine, is_on_gpu, run_trials

PEAK = 989e12  # bfloat16 operations a second of an H100 or H200, by its data sheet
_NUM_CLASSES = 10
_CLIP_NORM = 0.1
_BATCHES = 2  # of trials: the first one compiles

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class _Kind:
    """One of the two networks."""

    name: str
    shape: fused.Shape

    def network(self, precision: Precision = "float32") -> Network:
        side, channels, activation = self.shape.side, self.shape.channels, self.shape.activation
        return paper_network(activation=activation, input_shape=(side, side, channels), precision=precision)  # type: ignore[arg-type]


_MNIST = _Kind("MNIST", fused.Shape(28, 1, _NUM_CLASSES, "tanh"))
_CIFAR = _Kind("CIFAR-10", fused.Shape(32, 3, _NUM_CLASSES, "relu"))


@dataclass(frozen=True)
class _Sizes:
    """`fused` is (network, models, batch, target in seconds), `layered` (network, models, batch, precision)."""

    fused: tuple[tuple[_Kind, int, int, float | None], ...]
    layered: tuple[tuple[_Kind, int, int, Precision], ...]
    forward: tuple[tuple[_Kind, int, int], ...]
    images: int
    steps: int
    trials: tuple[tuple[str, int], ...]  # rows of the table, and how many trials of each at once
    repeats: int


_FULL = _Sizes(
    fused=(
        (_MNIST, 96, 64, None),
        (_MNIST, 384, 64, 1 / 12e6),
        (_MNIST, 384, 256, None),
        (_CIFAR, 96, 64, None),
        (_CIFAR, 384, 64, 1 / 5e6),
    ),
    layered=((_MNIST, 96, 64, "bfloat16"), (_MNIST, 96, 64, "float32"), (_CIFAR, 96, 64, "bfloat16")),
    forward=((_MNIST, 96, 4992), (_CIFAR, 96, 4992)),
    images=50_000,  # as many as the datasets have: no cache holds them
    steps=20,
    trials=(("mnist-k6-0.4", 50), ("cifar-10-k6-0.15", 20)),
    repeats=5,
)
_QUICK = _Sizes(
    fused=((_MNIST, 1, 16, None),),
    layered=((_MNIST, 1, 16, "bfloat16"),),
    forward=((_MNIST, 1, 16),),
    images=20,
    steps=1,
    trials=(("quick", 1),),
    repeats=1,
)


def num_steps(*, quick: bool) -> int:
    """How far `lines` advances its progress bar in all."""
    sizes = _QUICK if quick else _FULL
    return sizes.repeats * (len(sizes.fused) + len(sizes.layered) + len(sizes.forward)) + _BATCHES * len(sizes.trials)


def lines(*, quick: bool, advance: Advance) -> list[Line]:
    """Seconds of an example beside what its arithmetic takes at the chip's full rate; checks; a trial.

    Without MNIST or CIFAR-10 (`EXPUNGE_DATA`) the lines of its trials are left out.
    """
    sizes = _QUICK if quick else _FULL
    measure = partial(_measure, sizes=sizes, advance=advance)
    found = [measure(_fused_run, *given) for given in sizes.fused]
    found += [measure(_layered_run, *given) for given in sizes.layered]
    found += [measure(_forward_run, *given) for given in sizes.forward]
    return found + [line for name, trials in sizes.trials for line in _trial_lines(name, trials, advance)]


@dataclass(frozen=True)
class _Workload:
    """Something to time, in words and in numbers."""

    what: str
    run: Callable[[], Any]
    examples: int
    operations: int  # of an example
    target: Target | None = None


def _measure(make: Callable[..., _Workload], *given: Any, sizes: _Sizes, advance: Advance) -> Line:
    work = make(*given, sizes)
    task = Task(lambda: jax.block_until_ready(work.run()), operations=work.examples)
    (mine,) = race([task], repeats=sizes.repeats, advance=advance)
    floor = [work.operations / PEAK] * len(mine)
    return Line.cost(work.what, mine, f"its arithmetic at {PEAK / 1e12:.0f} TFLOP/s", floor, target=work.target)


@dataclass(frozen=True)
class _Problem:
    """Random pictures, weights and batches."""

    pictures: Any
    parameters: Any
    rows: Any
    labels: Any


def _problem(kind: _Kind, models: int, batch: int, images: int) -> _Problem:
    rng = np.random.default_rng(0)
    side, channels = kind.shape.side, kind.shape.channels
    lit = rng.random((images, side, side, 1), dtype=np.float32) < 0.4
    pictures = rng.integers(0, 256, (images, side, side, channels), dtype=np.uint8) * lit
    keys = jax.random.split(jax.random.key(0), models)
    network = kind.network()
    return _Problem(
        pictures=pictures,
        parameters=jax.jit(jax.vmap(lambda key: network.init(key, _NUM_CLASSES)))(keys),
        rows=jnp.asarray(rng.integers(0, images, (models, batch)), jnp.int32),
        labels=jnp.asarray(rng.integers(0, _NUM_CLASSES, (models, batch)), jnp.int32),
    )


def _fused_run(kind: _Kind, models: int, batch: int, target: float | None, sizes: _Sizes) -> _Workload:
    """The kernels with an update of the weights, in a loop."""
    problem, shape, interpret = _problem(kind, models, batch, sizes.images), kind.shape, _is_interpreted()
    table = fused.patch_table(problem.pictures, shape)
    weights = fused.native(problem.parameters, shape)

    def train(start: Any, table: Any, rows: Any, labels: Any) -> Any:
        def step(_: Any, own: Any) -> Any:
            sums = fused.clipped_sums(shape, table, rows, labels, own, clip_norm=_CLIP_NORM, interpret=interpret)
            return jax.tree.map(lambda old, total: old - 0.5 / batch * total, own, sums)

        return jax.lax.fori_loop(0, sizes.steps, step, start)

    compiled = jax.jit(train)
    return _Workload(
        what=f"an example-gradient: {kind.name} network, {models} models × {batch}, fused kernel, bfloat16",
        run=lambda: compiled(weights, table, problem.rows, problem.labels),
        examples=models * batch * sizes.steps,
        operations=kind.network().example_operations(_NUM_CLASSES)["gradient"],
        target=None if target is None else Target.ours_at_most(target),
    )


def _layered_run(kind: _Kind, models: int, batch: int, precision: Precision, sizes: _Sizes) -> _Workload:
    """The same, as the learner runs it for any network."""
    problem, network = _problem(kind, models, batch, sizes.images), kind.network(precision)

    def train(start: Any, pictures: Any, rows: Any, labels: Any) -> Any:
        def one(own: Any, chosen: Any, codes: Any) -> Any:
            x = pictures[chosen].astype(jnp.float32) / 255
            return clipped_sum(network, cross_entropy, own, x, codes, jnp.ones(batch), _CLIP_NORM)

        def step(_: Any, own: Any) -> Any:
            sums = jax.vmap(one)(own, rows, labels)
            return jax.tree.map(lambda old, total: old - 0.5 / batch * total, own, sums)

        return jax.lax.fori_loop(0, sizes.steps, step, start)

    compiled, pictures = jax.jit(train), jnp.asarray(problem.pictures)
    return _Workload(
        what=f"an example-gradient: {kind.name} network, {models} models × {batch}, layer by layer, {precision}",
        run=lambda: compiled(problem.parameters, pictures, problem.rows, problem.labels),
        examples=models * batch * sizes.steps,
        operations=network.example_operations(_NUM_CLASSES)["gradient"],
    )


def _forward_run(kind: _Kind, models: int, examples: int, sizes: _Sizes) -> _Workload:
    """Scores and the class that they are for."""
    problem, shape, interpret = _problem(kind, models, examples, sizes.images), kind.shape, _is_interpreted()
    table, weights = fused.patch_table(problem.pictures, shape), fused.native(problem.parameters, shape)
    compiled = jax.jit(
        lambda weights, table, rows: fused.scores(shape, table, rows, weights, interpret=interpret).argmax(axis=2)
    )
    return _Workload(
        what=f"a forward pass: {kind.name} network, {models} models × {examples}, fused kernel, bfloat16",
        run=lambda: compiled(weights, table, problem.rows),
        examples=models * examples,
        operations=kind.network().example_operations(_NUM_CLASSES)["forward"],
    )


class _Watched(FusedEngine):
    """Notes the seconds of training and of the choice among the checks."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.trainings: list[float] = []
        self.choices: list[float] = []

    def train_checks(self, *arguments: Any, **options: Any) -> fused.Weights:
        return self._note(self.trainings, super().train_checks, *arguments, **options)

    def select(self, checks: fused.Weights) -> fused.Weights:
        return self._note(self.choices, super().select, checks)

    @staticmethod
    def _note(notes: list[float], function: Callable[..., Any], *arguments: Any, **options: Any) -> fused.Weights:
        found: fused.Weights
        found, seconds = _timed(function, *arguments, **options)
        notes.append(seconds)
        return found


def _timed(function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, float]:
    began = perf_counter()
    found = jax.block_until_ready(function(*arguments, **options))
    return found, perf_counter() - began


def _trial_lines(name: str, trials: int, advance: Advance) -> list[Line]:
    """Whole trials as the table runs them; all of the first batch is warming up."""
    try:
        row, pictures, engine = _quick_setting() if name == "quick" else _table_setting(name)
    except InputError:
        advance(_BATCHES)
        return []
    seconds = []
    for batch in range(_BATCHES):
        engine.trainings.clear()
        engine.choices.clear()
        numbers = range(batch * trials, (batch + 1) * trials)
        seconds.append(_timed(run_trials, row, engine, pictures, seed=0, numbers=numbers)[1] / trials)
        advance(1)
    models = trials * row.num_shards
    return [
        Line.cost(
            f"choosing among {row.num_checks} checks: {row.title}, {models} models",
            engine.choices,
            "the training",
            engine.trainings,
            target=Target.ratio_at_most(0.25),
        ),
        Line.alone(f"a trial of the white-box experiment: {row.title}, {trials} at once", seconds[-1:]),
    ]


def _table_setting(name: str) -> tuple[Row, Pictures, _Watched]:
    row = next(row for row in table_rows() if row.name == name)
    pictures = load_pictures(row.experiment)
    return row, pictures, _Watched(row.experiment, pictures)


def _quick_setting() -> tuple[Row, Pictures, _Watched]:
    """Random pictures, hardly more than the kernel takes."""
    row = Row(Experiment("mnist", 2, 128, 16, 20, 0.5, "tanh"), 0.0, None)
    rng = np.random.default_rng(0)
    sets = [(rng.integers(0, 256, (n, 28, 28, 1), np.uint8), rng.integers(0, 10, n, np.int32)) for n in (256, 16, 16)]
    pictures = Pictures(*(array for part in sets for array in part))
    engine = _Watched(row.experiment, pictures, part=16, block=16, at_once=4, interpret=_is_interpreted())
    return row, pictures, engine


def _is_interpreted() -> bool:
    return not is_on_gpu()
