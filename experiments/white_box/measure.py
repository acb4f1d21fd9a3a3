"""Rates of clipped gradients and of forward passes on the device at hand: correctness first, then seconds.

    python experiments/white_box/measure.py kernel     the fused kernel and the layer-by-layer form, random pictures
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from expunge.learners.jax import _fused as fused
from expunge.learners.jax import paper_network
from expunge.learners.jax._gradients import clipped_sum, cross_entropy

NETWORKS = {"mnist": (28, 1, "tanh"), "cifar": (32, 3, "relu")}
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
    pictures = (rng.integers(0, 256, (images, side, side, channels)) * (rng.random((images, side, side, 1)) < 0.4))
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


def repeated(step: Callable[[Any], Any], steps: int) -> Callable[[Any], Any]:
    """A loop of steps in one program, each using the last one's result."""
    return jax.jit(lambda state: jax.lax.fori_loop(0, steps, lambda _, own: step(own), state))


def measure_fused(name: str, models: int, batch: int, warps: int, steps: int = 20) -> None:
    """The kernel with the update of the weights, in a loop."""
    data = problem(name, models, batch)
    shape = data["shape"]

    def step(weights: Any) -> Any:
        sums = fused.clipped_sums(
            shape, data["table"], data["rows"], data["labels"], weights, clip_norm=0.1, num_warps=warps
        )
        return jax.tree.map(lambda old, total: old - 0.5 / batch * total, weights, sums)

    run = repeated(step, steps)
    first, median = seconds(lambda: run(data["weights"]))
    report(what="fused", net=name, models=models, batch=batch, warps=warps, first_s=round(first, 1),
           mega_per_s=round(models * batch * steps / median / 1e6, 2))


def measure_scores(name: str, models: int, examples: int, warps: int) -> None:
    """Forward passes."""
    data = problem(name, models, examples)
    run = jax.jit(
        lambda weights: jnp.sum(
            fused.scores(data["shape"], data["table"], data["rows"], weights, num_warps=warps).argmax(axis=2), axis=1
        )
    )
    first, median = seconds(lambda: run(data["weights"]))
    report(what="scores", net=name, models=models, examples=examples, warps=warps, first_s=round(first, 1),
           mega_per_s=round(models * examples / median / 1e6, 2))


def measure_layers(name: str, models: int, batch: int, precision: str, steps: int = 10) -> None:
    """The layer-by-layer form, as the learner runs it."""
    data = problem(name, models, batch)
    side, channels, activation = NETWORKS[name]
    network = paper_network(activation=activation, input_shape=(side, side, channels), precision=precision)

    def step(parameters: Any) -> Any:
        def one(own: Any, rows: Any, labels: Any) -> Any:
            x = data["pictures"][rows].astype(jnp.float32) / 255
            return clipped_sum(network, cross_entropy, own, x, labels, jnp.ones(batch), 0.1)

        sums = jax.vmap(one)(parameters, data["rows"], data["labels"])
        return jax.tree.map(lambda old, total: old - 0.5 / batch * total, parameters, sums)

    run = repeated(step, steps)
    first, median = seconds(lambda: run(data["parameters"]), repeats=3)
    report(what="layers", net=name, models=models, batch=batch, precision=precision, first_s=round(first, 1),
           mega_per_s=round(models * batch * steps / median / 1e6, 2))


def check(name: str, models: int = 4, batch: int = 32) -> None:
    """The kernel against the layers in float32."""
    data = problem(name, models, batch)
    shape, network = data["shape"], data["network"]
    sums = jax.jit(lambda: fused.standard(fused.clipped_sums(
        shape, data["table"], data["rows"], data["labels"], data["weights"], clip_norm=0.1), shape))()

    def one(own: Any, rows: Any, labels: Any) -> Any:
        x = data["pictures"][rows].astype(jnp.float32) / 255
        return clipped_sum(network, cross_entropy, own, x, labels, jnp.ones(batch), 0.1), network.apply(own, x)

    right, right_scores = jax.jit(jax.vmap(one))(data["parameters"], data["rows"], data["labels"])
    found = jax.jit(lambda: fused.scores(shape, data["table"], data["rows"], data["weights"]))()

    def distance(first: Any, second: Any) -> float:
        left, other = (
            np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (first, second)
        )
        return float(np.linalg.norm(left - other) / np.linalg.norm(other))

    report(what="check", net=name, gradient_error=distance(sums, right), score_error=distance(found, right_scores))


def kernel() -> None:
    """Everything about the kernel."""
    report(device=str(jax.devices()[0]), jax=jax.__version__)
    jobs: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
        (check, ("mnist",)),
        (measure_fused, ("mnist", 96, 64, 4)),
        (measure_fused, ("mnist", 96, 64, 8)),
        (measure_fused, ("mnist", 384, 64, 4)),
        (measure_scores, ("mnist", 96, 4992, 4)),
        (measure_scores, ("mnist", 96, 4992, 8)),
        (measure_layers, ("mnist", 96, 64, "bfloat16")),
        (measure_layers, ("mnist", 96, 64, "float32")),
        (check, ("cifar",)),
        (measure_fused, ("cifar", 96, 64, 8)),
        (measure_scores, ("cifar", 96, 4992, 4)),
        (measure_layers, ("cifar", 96, 64, "bfloat16")),
    ]
    for job, arguments in jobs:
        try:
            job(*arguments)
        except Exception as error:
            report(failed=job.__name__, arguments=arguments, error=f"{type(error).__name__}: {error}"[:600])


if __name__ == "__main__":
    {"kernel": kernel}[sys.argv[1]]()
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text("\n".join(json.dumps(line) for line in LINES) + "\n")
