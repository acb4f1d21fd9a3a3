"""The largest programs of both networks, as far as they go without a GPU: as the compiler's input."""

from __future__ import annotations

from functools import partial

import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp

from expunge_lab import kernels as fused
from expunge_lab.kernels.pictures import STRIPS, field_size
from expunge_lab.reproduction import EXPERIMENTS
from expunge_lab.reproduction.white_box import fused as training
from expunge_lab.reproduction.white_box import scoring
from expunge_lab.reproduction.white_box.runner import trials_in_an_array

TRIALS, PART, BLOCK = 100, 512, 128
LARGEST = [experiment for experiment in EXPERIMENTS if experiment.name in ("cifar-10-k6", "fashion-mnist-k6")]


def array(kind, *shape):
    return jax.ShapeDtypeStruct(shape, kind)


def lower(program, *arguments, **options):
    return program.trace(*arguments, **options).lower(lowering_platforms=("cuda",))


@pytest.mark.parametrize("experiment", LARGEST, ids=lambda experiment: experiment.name)
def test_programs_of_as_many_trials_as_may_be_are_translated(experiment):
    side, channels = (32, 3) if experiment.dataset == "cifar-10" else (28, 1)
    shape = fused.Shape(side, channels, 10, experiment.activation)
    plan = training.Plan.of(experiment, shape, interpret=False)
    trials = min(TRIALS, trials_in_an_array(experiment, shape))
    models, points = trials * experiment.num_shards, experiment.num_points

    def weights(*leading):
        return fused.Weights(*(array(jnp.float32, *leading, *size) for size in shape.sizes()))

    def table(images):
        strips = array(jnp.bfloat16, images * STRIPS)
        return fused.Pictures(array(jnp.int16, images * field_size(channels)), (strips,) * channels)

    numbers = array(jnp.float32), array(jnp.float32)
    rows, sizes = array(jnp.int32, models, plan.room), array(jnp.int32, models)
    data = weights(models), table(points), array(jnp.int32, points), rows, sizes, array(jnp.uint32, models, 2)
    lower(training._train_all, plan, True, *data, *numbers)
    places = array(jnp.int32, models, -(-points // PART) * PART)
    options = {"shape": shape, "interpret": False}

    def operands(*leading):
        return jax.eval_shape(partial(scoring.make_operands, channels=channels), weights(*leading))

    owners = array(jnp.int32, models)
    lower(scoring.scores_in_parts, table(points), places, operands(models), owners, part=PART, **options)
    wanted = array(jnp.int32, 3, PART)
    given = operands(plan.num_checks, models), array(jnp.int32, models, 5120), table(5000), array(jnp.int32, 5000)
    lower(training._count_errors, *given, wanted, block=BLOCK, **options)
