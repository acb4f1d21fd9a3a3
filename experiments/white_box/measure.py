"""Rates of clipped gradients and of forward passes on the device at hand: correctness first, then seconds.

python experiments/white_box/measure.py kernel     the fused kernel and the layer-by-layer form, random pictures
python experiments/white_box/measure.py trials     whole trials of MNIST, k = 6, noise multiplier 0.4 (EXPUNGE_DATA)
python experiments/white_box/measure.py both [FILE] all of it, and the lines as JSON into FILE
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "src")]

from expunge.learners.jax import _fused as fused  # noqa: E402
from expunge.learners.jax import paper_network  # noqa: E402
from expunge.learners.jax._gradients import clipped_sum, cross_entropy  # noqa: E402
from white_box import TrialResults, find_row, load_pictures, run_trials  # noqa: E402
from white_box.engines import FusedEngine  # noqa: E402
from white_box.trials import ARMS  # noqa: E402

NETWORKS: dict[str, tuple[int, int, Literal["tanh", "relu"]]] = {"mnist": (28, 1, "tanh"), "cifar": (32, 3, "relu")}
LINES: list[dict[str, Any]] = []


def report(**facts: Any) -> None:
    """A line of facts, at once."""
    LINES.append(facts)
    print(json.dumps(facts), flush=True)


def seconds(run: Callable[[], Any], *, repeats: int = 5) -> tuple[float, float]:
    """(first call, median of the others), waiting for the device."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    first = time.perf_counter() - start
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(run())
        found.append(time.perf_counter() - start)
    return first, float(np.median(found))


def problem(name: str, models: int, batch: int, images: int = 2000) -> dict[str, Any]:
    """Random pictures, weights and batches."""
    side, channels, activation = NETWORKS[name]
    rng = np.random.default_rng(0)
    shape = fused.Shape(side, channels, 10, activation)
    pictures = rng.integers(0, 256, (images, side, side, channels)) * (rng.random((images, side, side, 1)) < 0.4)
    pictures = pictures.astype(np.uint8)
    network = paper_network(activation=activation, input_shape=(side, side, channels))
    parameters = jax.jit(jax.vmap(lambda key: network.init(key, 10)))(jax.random.split(jax.random.key(0), models))
    return {
        "shape": shape,
        "network": network,
        "pictures": jnp.asarray(pictures),
        "table": tuple(jnp.asarray(plane) for plane in fused.patch_table(pictures, shape)),
        "parameters": parameters,
        "weights": jax.jit(lambda given: fused.native(given, shape))(parameters),
        "rows": jnp.asarray(rng.integers(0, images, (models, batch)), jnp.int32),
        "labels": jnp.asarray(rng.integers(0, 10, (models, batch)), jnp.int32),
    }


def measure_fused(name: str, models: int, batch: int, warps: Any = (4, 4, 4, 4), steps: int = 20) -> None:
    """The kernels with the update of the weights, in a loop."""
    data = problem(name, models, batch)
    shape = data["shape"]

    @jax.jit  # type: ignore[untyped-decorator]
    def run(weights: Any, table: Any, rows: Any, labels: Any) -> Any:
        def step(_: Any, own: Any) -> Any:
            sums = fused.clipped_sums(shape, table, rows, labels, own, clip_norm=0.1, warps=warps)
            return jax.tree.map(lambda old, total: old - 0.5 / batch * total, own, sums)

        return jax.lax.fori_loop(0, steps, step, weights)

    given = [data[key] for key in ("weights", "table", "rows", "labels")]
    first, median = seconds(lambda: run(*given))
    report(
        what="fused",
        net=name,
        models=models,
        batch=batch,
        warps=warps,
        first_s=round(first, 1),
        mega_per_s=round(models * batch * steps / median / 1e6, 2),
    )


def measure_scores(name: str, models: int, examples: int, warps: int) -> None:
    """Forward passes."""
    data = problem(name, models, examples)

    @jax.jit  # type: ignore[untyped-decorator]
    def run(weights: Any, table: Any, rows: Any) -> Any:
        return jnp.sum(fused.scores(data["shape"], table, rows, weights, num_warps=warps).argmax(axis=2), axis=1)

    given = [data[key] for key in ("weights", "table", "rows")]
    first, median = seconds(lambda: run(*given))
    report(
        what="scores",
        net=name,
        models=models,
        examples=examples,
        warps=warps,
        first_s=round(first, 1),
        mega_per_s=round(models * examples / median / 1e6, 2),
    )


def measure_layers(
    name: str, models: int, batch: int, precision: Literal["float32", "bfloat16"], steps: int = 10
) -> None:
    """The layer-by-layer form, as the learner runs it."""
    data = problem(name, models, batch)
    side, channels, activation = NETWORKS[name]
    network = paper_network(activation=activation, input_shape=(side, side, channels), precision=precision)

    @jax.jit  # type: ignore[untyped-decorator]
    def run(parameters: Any, pictures: Any, rows: Any, labels: Any) -> Any:
        def one(own: Any, chosen: Any, codes: Any) -> Any:
            x = pictures[chosen].astype(jnp.float32) / 255
            return clipped_sum(network, cross_entropy, own, x, codes, jnp.ones(batch), 0.1)

        def step(_: Any, own: Any) -> Any:
            sums = jax.vmap(one)(own, rows, labels)
            return jax.tree.map(lambda old, total: old - 0.5 / batch * total, own, sums)

        return jax.lax.fori_loop(0, steps, step, parameters)

    given = [data[key] for key in ("parameters", "pictures", "rows", "labels")]
    first, median = seconds(lambda: run(*given), repeats=3)
    report(
        what="layers",
        net=name,
        models=models,
        batch=batch,
        precision=precision,
        first_s=round(first, 1),
        mega_per_s=round(models * batch * steps / median / 1e6, 2),
    )


def check(name: str, models: int = 4, batch: int = 32) -> None:
    """The kernel against the layers in float32."""
    data = problem(name, models, batch)
    shape, network = data["shape"], data["network"]
    sums = jax.jit(
        lambda: fused.standard(
            fused.clipped_sums(shape, data["table"], data["rows"], data["labels"], data["weights"], clip_norm=0.1),
            shape,
        )
    )()

    def one(own: Any, rows: Any, labels: Any) -> Any:
        x = data["pictures"][rows].astype(jnp.float32) / 255
        return clipped_sum(network, cross_entropy, own, x, labels, jnp.ones(batch), 0.1), network.apply(own, x)

    right, right_scores = jax.jit(jax.vmap(one))(data["parameters"], data["rows"], data["labels"])
    found = jax.jit(lambda: fused.scores(shape, data["table"], data["rows"], data["weights"]))()

    def distance(first: Any, second: Any) -> float:
        left, other = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (first, second))
        return float(np.linalg.norm(left - other) / np.linalg.norm(other))

    report(what="check", net=name, gradient_error=distance(sums, right), score_error=distance(found, right_scores))


def trials(shards: int = 6, noise: float = 0.4, number: int = 64, batches: int = 2) -> None:
    """Whole trials: every stage's seconds, and the columns of the table."""
    row = find_row("mnist", shards, noise)
    start = time.perf_counter()
    pictures = load_pictures(row.dataset)
    engine = FusedEngine(row, pictures)
    jax.block_until_ready(engine._train_table)
    report(what="data on the device", seconds=round(time.perf_counter() - start, 2))
    watched = Watched(engine)
    parts = []
    for batch in range(batches):
        start = time.perf_counter()
        watched.seconds.clear()
        parts.append(run_trials(row, watched, pictures, seed=1, trials=range(batch * number, (batch + 1) * number)))
        total = time.perf_counter() - start
        gradients = 3 * number * row.num_shards * row.num_steps * row.batch_size
        report(
            what="trials",
            batch=batch,
            trials=number,
            seconds=round(total, 2),
            stages=watched.seconds,
            mega_per_s=round(gradients / total / 1e6, 2),
        )
        results = TrialResults.joined(parts)
        names = [f"{way}{arm}" for way in ("", "voted_", "averaged_") for arm in ARMS]
        means = {name: getattr(results, name).reshape(len(results.deleted), -1).mean(axis=1) for name in names}
        report(
            what="columns",
            row=row.name,
            trials=len(results.deleted),
            accuracy={name: [round(float(v.mean()), 4), round(2 * float(v.std()), 4)] for name, v in means.items()},
            shard_prediction=round(float(results.shard_prediction.mean()), 4),
            indicator={arm: round(float(results.indicator(arm).mean()), 3) for arm in ARMS},
        )
    if len(sys.argv) > 2:
        arrays: dict[str, Any] = TrialResults.joined(parts).arrays()
        np.savez_compressed(Path(sys.argv[2]).with_name(f"{row.name}.npz"), **arrays)


class Watched:
    """An engine whose calls are timed; training and the choice among checks apart."""

    def __init__(self, engine: FusedEngine) -> None:
        self._engine = engine
        self.seconds: dict[str, float] = {}
        choose = engine.select

        def select(checks: Any) -> Any:
            return self._timed("select", choose, checks)

        engine.select = select  # type: ignore[method-assign]

    def _timed(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        if name == "select":
            jax.block_until_ready(arguments)
        start = time.perf_counter()
        found = jax.block_until_ready(function(*arguments))
        number = sum(key.startswith(name) for key in self.seconds)
        self.seconds[f"{name}{number}"] = round(time.perf_counter() - start, 3)
        return found

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self._timed(name, getattr(self._engine, name), *arguments)


def attempt(job: Callable[..., None], *arguments: Any) -> None:
    """A failure is a line of the report, not the end of it."""
    try:
        job(*arguments)
    except Exception as error:
        report(failed=job.__name__, arguments=arguments, error=f"{type(error).__name__}: {error}"[:600])


def kernels() -> None:
    """Rates of the kernels at the sizes of the table, and of the layer-by-layer form."""
    for models in (96, 384):
        attempt(measure_fused, "mnist", models, 64)
    attempt(measure_scores, "mnist", 96, 4992, 4)
    attempt(measure_fused, "mnist", 384, 256)
    for models in (96, 384):
        attempt(measure_fused, "cifar", models, 64)
    attempt(measure_scores, "cifar", 96, 4992, 4)
    attempt(measure_layers, "mnist", 96, 64, "bfloat16")


if __name__ == "__main__":
    report(device=str(jax.devices()[0]), jax=jax.__version__)
    if sys.argv[1] in ("kernel", "both"):
        attempt(check, "mnist")
        kernels()
    if sys.argv[1] in ("trials", "both"):
        attempt(trials)
        attempt(trials, 2, 0.8, 128, 1)
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text("\n".join(json.dumps(line) for line in LINES) + "\n")
