"""The GPU kernel, interpreted on a CPU, against the layers; and its order of weights."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from expunge.training.learners.jax import paper_network
from expunge.training.learners.jax.gradients import clipped_sum, cross_entropy
from expunge_lab import kernels as fused
from expunge_lab.kernels.kernel import Kernel

MODELS, BATCH, IMAGES = 2, 16, 6
KINDS = [(28, 1, "tanh"), (32, 3, "relu")]


def problem(side: int, channels: int, activation: Any) -> tuple[Any, ...]:
    shape = fused.Shape(side, channels, 10, activation)
    rng = np.random.default_rng(side)
    images = rng.integers(0, 256, (IMAGES, side, side, channels)).astype(np.uint8)
    network = paper_network(activation=activation, input_shape=(side, side, channels), precision="bfloat16")
    shapes = jax.eval_shape(lambda: network.init(jax.random.key(0), 10))
    parameters = jax.tree.map(lambda leaf: (rng.normal(size=(MODELS, *leaf.shape)) * 0.1).astype(np.float32), shapes)
    rows = rng.integers(0, IMAGES, (MODELS, BATCH)).astype(np.int32)
    labels = rng.integers(0, 10, (MODELS, BATCH)).astype(np.int32)
    return shape, images, network, parameters, rows, labels


def distance(first: Any, second: Any) -> float:
    left, right = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (first, second))
    return float(np.linalg.norm(left - right) / np.linalg.norm(right))


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_weights_can_be_undone(kind: tuple[int, int, str]) -> None:
    shape, _, _, parameters, _, _ = problem(*kind)
    weights = fused.native(parameters, shape)
    assert [leaf.shape[1:] for leaf in weights] == list(shape.sizes())
    back = fused.standard(weights, shape)
    for left, right in zip(jax.tree.leaves(back), jax.tree.leaves(parameters), strict=True):
        assert np.array_equal(left, right)


@pytest.mark.parametrize("kind", KINDS)
def test_clipped_sums_are_those_of_the_layers_in_half_precision(kind: tuple[int, int, str]) -> None:
    """Both round to bfloat16, in another order; a pool may then choose another of two nearly equal values."""
    shape, images, network, parameters, rows, labels = problem(*kind)
    table, weights = fused.patch_table(images, shape), fused.native(parameters, shape)
    x = images[rows].astype(np.float32) / 255
    sums = jax.jit(
        lambda: fused.clipped_sums(
            shape, table, jnp.asarray(rows), jnp.asarray(labels), weights, clip_norm=0.1, interpret=True
        )
    )()
    expected = jax.jit(
        jax.vmap(lambda own, x, y: clipped_sum(network, cross_entropy, own, x, y, jnp.ones(BATCH), 0.1))
    )(parameters, x, labels)
    found = fused.standard(sums, shape)
    assert distance(found, expected) < 0.1
    wrong_labels = jax.tree.map(lambda leaf: leaf[::-1], found)
    assert distance(wrong_labels, expected) > 0.5


def test_pictures_that_are_mostly_dark() -> None:
    """Where a whole patch is zero all candidates of a pool tie at zero; the bias's gradient comes from there too."""
    shape, images, network, parameters, rows, labels = problem(*KINDS[0])
    images = images * (np.arange(28) > 20)[:, None].astype(np.uint8)
    table, weights = fused.patch_table(images, shape), fused.native(parameters, shape)
    given = shape, table, jnp.asarray(rows), jnp.asarray(labels), weights
    found = fused.standard(jax.jit(lambda: fused.clipped_sums(*given, clip_norm=0.1, interpret=True))(), shape)
    sums = jax.vmap(lambda own, x, y: clipped_sum(network, cross_entropy, own, x, y, jnp.ones(BATCH), 0.1))
    expected = jax.jit(sums)(parameters, images[rows].astype(np.float32) / 255, labels)
    assert distance(found[0]["bias"], expected[0]["bias"]) < 0.05
    assert distance(found, expected) < 0.1


def test_scores_are_those_of_the_layers_in_half_precision() -> None:
    """Of the network with more channels; its other kernels' forward pass is the same code."""
    shape, images, network, parameters, rows, _ = problem(*KINDS[1])
    table, weights = fused.patch_table(images, shape), fused.native(parameters, shape)
    scores = jax.jit(lambda: fused.scores(shape, table, jnp.asarray(rows), weights, interpret=True))()
    x = images[rows].astype(np.float32) / 255
    assert distance(scores, jax.jit(jax.vmap(network.apply))(parameters, x)) < 0.01


def test_a_batch_is_whole_groups() -> None:
    shape, images, _, parameters, rows, labels = problem(*KINDS[0])
    with pytest.raises(ValueError, match="multiple of 16"):
        fused.clipped_sums(
            shape,
            fused.patch_table(images, shape),
            rows[:, :5],
            labels[:, :5],
            fused.native(parameters, shape),
            clip_norm=1.0,
        )


def test_scores_do_not_depend_on_how_the_kernel_is_tuned() -> None:
    shape, images, _, parameters, rows, _ = problem(*KINDS[0])
    table, weights = fused.patch_table(images, shape), fused.native(parameters, shape)
    other = fused.Tunings(scores=fused.Tuning(num_stages=2, bounded=False))
    one, two = (
        jax.jit(lambda tunings=tunings: fused.scores(shape, table, rows, weights, tunings=tunings, interpret=True))()
        for tunings in (fused.Tunings(), other)
    )
    assert np.array_equal(one, two)


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernels_are_translated_for_a_gpu(kind: tuple[int, int, str]) -> None:
    """As far as that goes without one: to the compiler's input, in which every kernel is there."""
    side, channels, activation = kind
    shape = fused.Shape(side, channels, 10, activation)
    images = jax.ShapeDtypeStruct((IMAGES, side, side, channels), np.uint8)
    table = jax.eval_shape(lambda images: fused.patch_table(images, shape), images)
    weights = fused.Weights(*(jax.ShapeDtypeStruct((MODELS, *size), np.float32) for size in shape.sizes()))
    rows = jax.ShapeDtypeStruct((MODELS, BATCH), np.int32)

    def both(table: Any, rows: Any, labels: Any, weights: Any) -> Any:
        sums = fused.clipped_sums(shape, table, rows, labels, weights, clip_norm=0.1)
        return sums, fused.scores(shape, table, rows, weights)

    lowered = jax.jit(both).trace(table, rows, rows, weights).lower(lowering_platforms=("cuda",))
    text = str(lowered.compiler_ir("stablehlo"))
    for name in ("forward", "deltas", "clip", "sums", "scores"):
        assert f'name = "{name}"' in text


def test_a_table_too_large_for_the_kernels_places_is_refused() -> None:
    class Many:
        def __len__(self) -> int:
            return 1 << 17

    with pytest.raises(ValueError, match="fewer than 131072 pictures, got 131072"):
        fused.patch_table(Many(), fused.Shape(28, 1, 10, "tanh"))


def test_what_an_example_moves_is_counted() -> None:
    """Of 28 × 28 × 1, in bytes: 7 arrays written, 10 loaded, both orders of a picture, and sums of 16 examples."""
    table = 64 * 64
    kept = {"a1": 2 * table, "win1": table, "a2": table, "win2": table // 2, "da2": table, "d2": table, "d1": 2 * table}
    loaded = [*kept, "a1", "a1", "d2"]
    expected = sum(kept.values()) + sum(kept[name] for name in loaded) + 2 * (64 * 128 + 38 * 128) + 8 * 27_000 / 16
    assert fused.example_bytes(fused.Shape(28, 1, 10, "tanh")) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernels_differ_from_the_layers_by_rounding(kind: tuple[int, int, str]) -> None:
    side, channels, activation = kind
    found = fused.differences(fused.Shape(side, channels, 10, activation), interpret=True)
    assert found.are_small
    assert found.sums > 0 < found.scores


@pytest.mark.parametrize("direction", [1, -1])
def test_rows_that_threads_keep_are_found_out(direction: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up, in forward passes, or down, in the backward pass alone."""
    handed_on = Kernel.hand_on
    monkeypatch.setattr(
        Kernel, "hand_on", lambda self, table, way: table if way == direction else handed_on(self, table, way)
    )
    side, channels, activation = KINDS[0]
    found = fused.differences(fused.Shape(side, channels, 10, activation), interpret=True)
    assert not found.are_small
